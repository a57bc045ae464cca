// oneDNN's matrix products, for panels of tokens and a model's linear layers: onednn.cpp if the program was
// built with oneDNN, otherwise no_onednn.cpp.
#pragma once

#include <cstdint>
#include <string>

namespace headspan {

/// Returns whether this program has oneDNN. Builds on PyTorch's wheel do not: the wheel contains another
/// version, and the symbols of the two clash (with 2.6, sgemm is "unimplemented").
bool has_onednn();

/// Returns the version of oneDNN, for example "2.7.2"; "" without it.
std::string onednn_version();

/// Returns whether this program has oneDNN and its FP32 products are faster than those of BLAS here. A kept
/// choice (dist/fastest_choice.h), measured by the first call in this process at most.
bool onednn_is_faster();

/// Computes block[i + j m] = sum_t rows[i + t lda] columns[j + t ldb] in FP32: [m, n], column-major. Throws
/// Error. Local.
void onednn_product(const float* columns, std::int64_t ldb, const float* rows, std::int64_t lda,
                    std::int64_t m, std::int64_t n, std::int64_t tokens, float* block);
/// Computes the same product of bfloat16 numbers, summed in FP32.
void onednn_product(const std::uint16_t* columns, std::int64_t ldb, const std::uint16_t* rows,
                    std::int64_t lda, std::int64_t m, std::int64_t n, std::int64_t tokens, float* block);

/// Computes y = x weight^T in FP32, all row-major: x [tokens, inputs], weight [outputs, inputs], y [tokens,
/// outputs]. Throws Error. Local.
void onednn_linear(const float* x, std::int64_t tokens, std::int64_t inputs, const float* weight,
                   std::int64_t outputs, float* y);

}  // namespace headspan
