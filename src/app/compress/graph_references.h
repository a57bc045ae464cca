// The references that the paper's graphs of pairwise R² choose, as its text says or as its code does.
#pragma once

#include "app/compress/reference_input.h"
#include "stats/compression/causal_elimination.h"

namespace headspan {

/// The same on every rank. Collective over the Grams' grid.
References graph_references(const ReferenceInput& input);

}  // namespace headspan
