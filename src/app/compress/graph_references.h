// Chooses references by the paper's graphs of pairwise R2, as its text describes them or as its code does.
#pragma once

#include "app/compress/reference_input.h"
#include "stats/compression/causal_elimination.h"

namespace headspan {

/// Returns the references, the same on every rank. Collective over the Grams' grid.
References graph_references(const ReferenceInput& input);

}  // namespace headspan
