#include "dist/kernels/linear_product.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/checked.h"
#include "base/provenance.h"
#include "dist/blas_core.h"
#include "dist/fastest_choice.h"
#include "dist/matrix/large_array.h"
#include "dist/matrix/scalapack.h"
#include "dist/onednn.h"

namespace headspan {
namespace {

constexpr const char *kKernel = "kernel", *kLibrary = "library";

// BLAS's matrices are column-major: y^T = weight x^T, [outputs, tokens].
void multiply_by_blas(const LinearOperands<float>& operands, float* y) {
  const int m = to_int(operands.outputs), n = to_int(operands.tokens), k = to_int(operands.inputs);
  const int leading = std::max(1, k), leading_y = std::max(1, m);
  const float one = 1, zero = 0;
  sgemm_("T", "N", &m, &n, &k, &one, operands.weight, &leading, operands.x, &leading, &zero, y, &leading_y);
}

/// Measures the product of two square matrices.
std::string measured_way() {
  constexpr std::int64_t kSize = 560;
  const std::vector<float> x(to_size(kSize * kSize), 1);
  std::vector<float> y(x.size());
  const LinearOperands<float> operands{x.data(), kSize, kSize, x.data(), kSize};
  onednn_is_faster();  // is measured before, if it has to be
  const std::vector<double> seconds = least_seconds(
      {[&] { multiply_linear(operands, y.data()); }, [&] { multiply_by_library(operands, y.data()); }});
  return fastest(kKernel, {{kKernel, 1 / seconds[0]}, {kLibrary, 1 / seconds[1]}});
}

bool kernel_is_fastest() {
  static const bool is_fastest = [] {
    const std::string versions =
        program_version() + "\n" + describe_blas() + (has_onednn() ? "\noneDNN" : "");
    return kept_choice({"layers-float", versions, {kKernel, kLibrary}}, measured_way) == kKernel;
  }();
  return is_fastest;
}

}  // namespace

void multiply_by_library(const LinearOperands<float>& operands, float* y) {
  if (!onednn_is_faster()) return multiply_by_blas(operands, y);
  onednn_linear(operands.x, operands.tokens, operands.inputs, operands.weight, operands.outputs, y);
}

void multiply_by_library(const LinearOperands<std::uint16_t>& operands, float* y) {
  const std::int64_t count = operands.outputs * operands.inputs;
  LargeArray<float> wide;
  wide.reserve(count);
#pragma omp parallel for
  for (std::int64_t i = 0; i < count; ++i) wide.data()[i] = widened(operands.weight[i]);
  multiply_by_library(
      LinearOperands<float>{operands.x, operands.tokens, operands.inputs, wide.data(), operands.outputs}, y);
}

template <class W>
void multiply_fastest(const LinearOperands<W>& operands, float* y) {
  if (kernel_is_fastest())
    multiply_linear(operands, y);
  else
    multiply_by_library(operands, y);
}

template void multiply_fastest(const LinearOperands<float>&, float*);
template void multiply_fastest(const LinearOperands<std::uint16_t>&, float*);

}  // namespace headspan
