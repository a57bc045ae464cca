// Headspan's elimination of heads with references of the target's own layer and those before.
#pragma once

#include "app/compress/reference_input.h"
#include "stats/compression/causal_elimination.h"

namespace headspan {

/// Throws AgreedError where the budget is out of reach. The same on every rank. Collective over the Grams'
/// grid.
References causal_references(const ReferenceInput& input);

}  // namespace headspan
