// What of oneDNN the Gram takes: products of panels, where oneDNN was there when the program was built
// (onednn.cpp; else no_onednn.cpp).
#pragma once

#include <cstdint>

namespace headspan {

/// Whether this program has oneDNN. With PyTorch's wheel it has not: the wheel holds another version inside,
/// and the two hide parts of each other (2.6 beside it: sgemm is "unimplemented").
bool has_onednn();

/// block[i + j m] = sum_t rows[i + t lda] columns[j + t ldb] in FP32: [m, n], column-major. The second: of
/// bfloat16. Throws Error. Local.
void onednn_product(const float* columns, std::int64_t ldb, const float* rows, std::int64_t lda,
                    std::int64_t m, std::int64_t n, std::int64_t tokens, float* block);
void onednn_product(const std::uint16_t* columns, std::int64_t ldb, const std::uint16_t* rows,
                    std::int64_t lda, std::int64_t m, std::int64_t n, std::int64_t tokens, float* block);

}  // namespace headspan
