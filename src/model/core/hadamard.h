// Hadamard matrices, in whose coordinates the columns of a head are alike, so that few bits with one scale
// suffice for them.
#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace headspan {

/// Returns the Hadamard matrix of the largest power of two that divides d, normalised, as often along the
/// diagonal as it fits: [d, d] in float64, symmetric and its own inverse.
at::Tensor hadamard(std::int64_t d);

}  // namespace headspan
