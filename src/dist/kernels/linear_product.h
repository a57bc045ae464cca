// Products of a linear layer by the fastest of several ways: headspan's kernel (linear_kernel.h) or a
// library.
#pragma once

#include "dist/kernels/linear_kernel.h"

namespace headspan {

/// Sets y = x weight^T: [tokens, outputs], row-major, as multiply_linear does, by BLAS or oneDNN. Weights in
/// bfloat16 are widened in a copy first. Throws Error and std::bad_alloc. Local.
void multiply_by_library(const LinearOperands<float>& operands, float* y);
void multiply_by_library(const LinearOperands<std::uint16_t>& operands, float* y);

/// Sets y = x weight^T by headspan's kernel or the library, whichever is faster here: a kept choice
/// (dist/fastest_choice.h), measured by the first call in this process at most. Throws Error and
/// std::bad_alloc. Local.
template <class W>
void multiply_fastest(const LinearOperands<W>& operands, float* y);

}  // namespace headspan
