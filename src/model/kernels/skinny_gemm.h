// Products of a few rows with a matrix that is read once, as in a decode step. A general product would pack
// the matrix first, which costs more than the product itself. On pointers, on one thread, compiled for
// several instruction sets (base/process/cpu_dispatch.h); sums are in float32. For more than kMostSkinnyRows
// rows use BLAS.
#pragma once

#include <cstdint>

#include <c10/util/BFloat16.h>

namespace headspan {

constexpr std::int64_t kMostSkinnyRows = 16;

/// y[m, n] += sum_k x[m, k] w[n, k]. x: [rows, inner], w: [outputs, inner], y: [rows, outputs]; rows are
/// `..._leading` elements apart.
void skinny_gemm_transposed(const float* x, std::int64_t x_leading, std::int64_t rows, const float* w,
                            std::int64_t w_leading, std::int64_t outputs, std::int64_t inner, float* y,
                            std::int64_t y_leading);
void skinny_gemm_transposed(const float* x, std::int64_t x_leading, std::int64_t rows, const c10::BFloat16* w,
                            std::int64_t w_leading, std::int64_t outputs, std::int64_t inner, float* y,
                            std::int64_t y_leading);

/// y[m, c] += sum_k x[m, k] z[k, c]. x: [rows, inner], z: [inner, columns], y: [rows, columns].
void skinny_gemm(const float* x, std::int64_t x_leading, std::int64_t rows, const float* z,
                 std::int64_t z_leading, std::int64_t columns, std::int64_t inner, float* y,
                 std::int64_t y_leading);

}  // namespace headspan
