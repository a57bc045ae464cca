#include "stats/gram/float_gemm.h"

#include <cstring>

#include "base/checked.h"
#include "dist/matrix/scalapack.h"
#include "dist/onednn.h"

namespace headspan {
namespace {

/// Copies the upper halves of values: [leading, tokens].
void copy_bfloat16(const float* values, std::int64_t leading, std::int64_t tokens,
                   LargeArray<std::uint16_t>& out) {
  out.reserve(leading * tokens);
  std::uint16_t* const to = out.data();
#pragma omp parallel for schedule(static)
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = t * leading; i < (t + 1) * leading; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, values + i, sizeof bits);
      to[i] = static_cast<std::uint16_t>(bits >> 16);
    }
}

}  // namespace

FloatGemm::Kind FloatGemm::best(Precision precision) {
  if (precision == Precision::bfloat16 && is_possible(Kind::onednn_bfloat16)) return Kind::onednn_bfloat16;
  return onednn_is_faster() ? Kind::onednn_float : Kind::blas;
}

bool FloatGemm::is_possible(Kind kind) {
  if (kind == Kind::onednn_float) return has_onednn();
#if defined(__x86_64__)
  if (kind == Kind::onednn_bfloat16) return has_onednn() && __builtin_cpu_supports("avx512bf16") != 0;
#endif
  return kind == Kind::blas;
}

void FloatGemm::open(const PanelOperands<float>& panel) {
  HS_ASSERT(panel.block == panel.distance);
  panel_ = panel;
  if (kind_ != Kind::onednn_bfloat16) return;
  copy_bfloat16(panel_.rows, panel_.leading_rows, panel_.tokens, rows_);
  if (panel_.columns != panel_.rows)
    copy_bfloat16(panel_.columns, panel_.leading_columns, panel_.tokens, columns_);
}

void FloatGemm::multiply(std::int64_t row, std::int64_t m, std::int64_t column, std::int64_t n,
                         float* block) const {
  const std::int64_t lda = panel_.leading_rows, ldb = panel_.leading_columns, tokens = panel_.tokens;
  if (kind_ == Kind::blas) {
    const int rows = to_int(m), columns = to_int(n), inner = to_int(tokens), ld_rows = to_int(lda),
              ld_columns = to_int(ldb);
    const float one = 1, zero = 0;
    sgemm_("N", "T", &rows, &columns, &inner, &one, panel_.rows + row, &ld_rows, panel_.columns + column,
           &ld_columns, &zero, block, &rows);
    return;
  }
  if (kind_ == Kind::onednn_bfloat16) {
    const std::uint16_t* const right = panel_.columns == panel_.rows ? rows_.data() : columns_.data();
    onednn_product(right + column, ldb, rows_.data() + row, lda, m, n, tokens, block);
  } else {
    onednn_product(panel_.columns + column, ldb, panel_.rows + row, lda, m, n, tokens, block);
  }
}

}  // namespace headspan
