// What headspan takes of oneDNN, where that was there when the program was built (onednn.cpp; else
// no_onednn.cpp): products of panels and of a model's linear layers.
#pragma once

#include <cstdint>

namespace headspan {

/// Whether this program has oneDNN. With PyTorch's wheel it has not: the wheel holds another version inside,
/// and the two hide parts of each other (2.6 beside it: sgemm is "unimplemented").
bool has_onednn();

/// Whether it has, and its FP32 products are faster than those of OpenBLAS on this processor: with AVX-512 (a
/// core of an EPYC: 268 GF/s against 227 of OpenBLAS 0.3.21; without it 93 against 123).
bool onednn_is_faster();

/// block[i + j m] = sum_t rows[i + t lda] columns[j + t ldb] in FP32: [m, n], column-major. The second: of
/// bfloat16. Throws Error. Local.
void onednn_product(const float* columns, std::int64_t ldb, const float* rows, std::int64_t lda,
                    std::int64_t m, std::int64_t n, std::int64_t tokens, float* block);
void onednn_product(const std::uint16_t* columns, std::int64_t ldb, const std::uint16_t* rows,
                    std::int64_t lda, std::int64_t m, std::int64_t n, std::int64_t tokens, float* block);

/// y = x weight^T in FP32, all row-major: x [tokens, inputs], weight [outputs, inputs], y [tokens, outputs].
/// Throws Error. Local.
void onednn_linear(const float* x, std::int64_t tokens, std::int64_t inputs, const float* weight,
                   std::int64_t outputs, float* y);

}  // namespace headspan
