#include "stats/float_gemm.h"

#include <cstring>
#include <dnnl.hpp>

#include "base/checked.h"
#include "base/error.h"
#include "dist/scalapack.h"

namespace headspan {
namespace {

/// The upper halves of `count` floats: [leading, tokens].
void take_bfloat16(const float* values, std::int64_t leading, std::int64_t tokens,
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

/// block = columns rows^T for oneDNN, whose matrices are row-major: [n, tokens] times [tokens, m].
void multiply_bfloat16(const std::uint16_t* columns, std::int64_t ldb, const std::uint16_t* rows,
                       std::int64_t lda, std::int64_t m, std::int64_t n, std::int64_t tokens, float* block) {
  using dnnl::memory;
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  dnnl::stream stream(engine);
  const memory::desc left({n, tokens}, memory::data_type::bf16, memory::dims{1, ldb});
  const memory::desc right({tokens, m}, memory::data_type::bf16, memory::dims{lda, 1});
  const memory::desc out({n, m}, memory::data_type::f32, memory::dims{m, 1});
#if DNNL_VERSION_MAJOR >= 3
  const dnnl::matmul::primitive_desc description(engine, left, right, out);
#else
  const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(left, right, out), engine);
#endif
  dnnl::matmul(description)
      .execute(stream, {{DNNL_ARG_SRC, memory(left, engine, const_cast<std::uint16_t*>(columns))},
                        {DNNL_ARG_WEIGHTS, memory(right, engine, const_cast<std::uint16_t*>(rows))},
                        {DNNL_ARG_DST, memory(out, engine, block)}});
  stream.wait();
}

}  // namespace

FloatGemm::Kind FloatGemm::best(Precision precision) {
  if (precision == Precision::bfloat16 && is_possible(Kind::onednn_bfloat16)) return Kind::onednn_bfloat16;
  return is_possible(Kind::onednn_float) ? Kind::onednn_float : Kind::blas;
}

bool FloatGemm::is_possible(Kind kind) {
#if defined(__x86_64__)
  if (kind == Kind::onednn_float) return __builtin_cpu_supports("avx512bw") != 0;
  if (kind == Kind::onednn_bfloat16) return __builtin_cpu_supports("avx512bf16") != 0;
#endif
  return kind == Kind::blas;
}

void FloatGemm::open(const PanelOperands<float>& panel) {
  panel_ = panel;
  if (kind_ != Kind::onednn_bfloat16) return;
  take_bfloat16(panel.rows, panel.leading_rows, panel.tokens, rows_);
  if (panel.columns != panel.rows)
    take_bfloat16(panel.columns, panel.leading_columns, panel.tokens, columns_);
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
  try {
    if (kind_ == Kind::onednn_bfloat16) {
      const bool alone = panel_.columns == panel_.rows;
      multiply_bfloat16((alone ? rows_ : columns_).data() + column, ldb, rows_.data() + row, lda, m, n,
                        tokens, block);
    } else {
      dnnl::status status = dnnl::sgemm('T', 'N', n, m, tokens, 1, panel_.columns + column, ldb,
                                        panel_.rows + row, lda, 0, block, m);
      if (status != dnnl::status::success) throw dnnl::error(dnnl_status_t(status), "sgemm");
    }
  } catch (const dnnl::error& e) {
    throw Error(std::string("oneDNN: ") + e.what() + " (status " + std::to_string(e.status) + ")");
  }
}

}  // namespace headspan
