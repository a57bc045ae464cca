// Headspan's elimination of heads with references in the target's own layer.
#pragma once

#include "app/compress/reference_input.h"
#include "stats/compression/causal_elimination.h"

namespace headspan {

/// Returns the references, the same on every rank. Throws AgreedError if the budget cannot be met. Collective
/// over the Grams' grid.
References layer_references(const ReferenceInput& input);

}  // namespace headspan
