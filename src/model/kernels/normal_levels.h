// The levels of the quantiser that loses least on a normal distribution (Lloyd and Max), a table for each
// number of bits. It is not fitted to any data.
#pragma once

#include <vector>

namespace headspan {

/// Returns the 2^bits levels for a normal distribution of mean 0 and variance 1, ascending: each is the mean
/// of what is nearer to it than to any other (S. P. Lloyd, "Least squares quantization in PCM", 1982). `bits`
/// is 1 to kMostNormalBits (base/bands.h). Computed at the first call. Local; threads may call it at once.
const std::vector<float>& normal_levels(int bits);

}  // namespace headspan
