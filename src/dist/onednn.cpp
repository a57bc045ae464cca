#include "dist/onednn.h"

#include <algorithm>
#include <dnnl.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "dist/blas_core.h"
#include "dist/fastest_choice.h"
#include "dist/matrix/scalapack.h"

namespace headspan {
namespace {

/// Runs `work` and rethrows errors of oneDNN as Error.
template <class Work>
void checked_onednn(const Work& work) {
  try {
    work();
  } catch (const dnnl::error& e) {
    throw Error(std::string("oneDNN: ") + e.what() + " (status " + std::to_string(e.status) + ")");
  }
}

/// Measures the product of two square matrices in FP32.
std::string faster_product() {
  constexpr int kSize = 560;
  const std::vector<float> x(std::size_t{kSize} * kSize, 1);
  std::vector<float> y(x.size());
  const std::vector<double> seconds = least_seconds(
      {[&] {
         const float one = 1, zero = 0;
         sgemm_("N", "T", &kSize, &kSize, &kSize, &one, x.data(), &kSize, x.data(), &kSize, &zero, y.data(),
                &kSize);
       },
       [&] { onednn_product(x.data(), kSize, x.data(), kSize, kSize, kSize, kSize, y.data()); }});
  return fastest("blas", {{"blas", 1 / seconds[0]}, {"onednn", 1 / seconds[1]}});
}

}  // namespace

bool has_onednn() { return true; }

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return std::to_string(version->major) + "." + std::to_string(version->minor) + "." +
         std::to_string(version->patch);
}

bool onednn_is_faster() {
  static const bool is_faster = [] {
    const std::string version = std::to_string(DNNL_VERSION_MAJOR) + "." + std::to_string(DNNL_VERSION_MINOR);
    return kept_choice({"sgemm", describe_blas() + "\noneDNN " + version, {"blas", "onednn"}},
                       faster_product) == "onednn";
  }();
  return is_faster;
}

void onednn_linear(const float* x, std::int64_t tokens, std::int64_t inputs, const float* weight,
                   std::int64_t outputs, float* y) {
  if (inputs == 0) std::fill_n(y, tokens * outputs, 0.0F);
  if (tokens * outputs * inputs == 0) return;  // sgemm refuses leading dimensions of 0
  checked_onednn([&] {
    const dnnl::status status =
        dnnl::sgemm('N', 'T', tokens, outputs, inputs, 1, x, inputs, weight, inputs, 0, y, outputs);
    if (status != dnnl::status::success) throw dnnl::error(dnnl_status_t(status), "sgemm");
  });
}

// oneDNN's matrices are row-major: block^T = columns^T rows, [n, tokens] times [tokens, m].
void onednn_product(const float* columns, std::int64_t ldb, const float* rows, std::int64_t lda,
                    std::int64_t m, std::int64_t n, std::int64_t tokens, float* block) {
  checked_onednn([&] {
    const dnnl::status status = dnnl::sgemm('T', 'N', n, m, tokens, 1, columns, ldb, rows, lda, 0, block, m);
    if (status != dnnl::status::success) throw dnnl::error(dnnl_status_t(status), "sgemm");
  });
}

void onednn_product(const std::uint16_t* columns, std::int64_t ldb, const std::uint16_t* rows,
                    std::int64_t lda, std::int64_t m, std::int64_t n, std::int64_t tokens, float* block) {
  using dnnl::memory;
  checked_onednn([&] {
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
  });
}

}  // namespace headspan
