#include "device/device_values.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
#include <ATen/DeviceAccelerator.h>
#endif

#include "base/error.h"

namespace headspan {
namespace {

// Products of bfloat16 with sums in FP32 that are handed out as such, and of integers: on GPUs, in LibTorch
// from 2.8 on.
constexpr bool kWideSums = TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8);

/// Tokens that are shifted at once: FP64 for a whole panel would be more than the panel.
constexpr std::int64_t kTokens = 256;

bool sums_widely(const at::Tensor& values) { return kWideSums && values.is_cuda(); }

at::Tensor float_product(const at::Tensor& a, const at::Tensor& b) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  if (a.scalar_type() == at::kBFloat16) return at::mm(a, b, at::kFloat);
#endif
  return at::mm(a, b);
}

}  // namespace

void set_exact_products() {
  at::Context& context = at::globalContext();
  context.setFloat32MatmulPrecision("highest");
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)  // which GPUs need
  context.setAllowFP16ReductionCuBLAS(false);
  context.setAllowBF16ReductionCuBLAS(false);
  context.setSDPUseCuDNN(false);
#endif
}

void wait_for(at::Device device) { at::zeros({1}, at::dtype(at::kInt).device(device)).item(); }

void release_unused(at::Device device) {
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 9)
  if (device.is_cuda()) at::accelerator::emptyCache();
#else
  static_cast<void>(device);  // earlier ones have it in CUDA's own library alone
#endif
}

at::ScalarType panel_type(Precision precision) {
  switch (precision) {
    case Precision::float64:
      return at::kDouble;
    case Precision::float32:
    case Precision::split:  // hi + lo has 24 bits or fewer
      return at::kFloat;
    case Precision::bfloat16:
      return at::kBFloat16;
  }
  throw Error("panel_type: no such precision");
}

void shift_values(const at::Tensor& in, const at::Tensor& origin, Precision precision, at::Tensor& out) {
  HS_ASSERT(out.scalar_type() == panel_type(precision));
  for (std::int64_t first = 0; first < in.size(0); first += kTokens) {
    const std::int64_t count = std::min(kTokens, in.size(0) - first);
    const at::Tensor shifted = in.narrow(0, first, count).to(at::kDouble).sub_(origin);
    at::Tensor part = out.narrow(0, first, count);
    if (precision == Precision::float64) {
      part.copy_(shifted);
      continue;
    }
    const at::Tensor single = shifted.to(at::kFloat);        // bfloat16 too is rounded from FP32
    if (precision != Precision::split || sums_widely(in)) {  // integers hold more than hi + lo
      part.copy_(single);
      continue;
    }
    const at::Tensor high = single.to(at::kBFloat16).to(at::kFloat);
    part.copy_(high + (single - high).to(at::kBFloat16).to(at::kFloat));
  }
}

PanelOperand PanelOperand::narrow(std::int64_t first, std::int64_t count) const {
  if (integers) return {{}, integers->narrow(first, count)};
  return {values.narrow(1, first, count), {}};
}

PanelOperand as_operand(const at::Tensor& values, Precision precision) {
  if (precision == Precision::split && sums_widely(values) && values.size(0) > 0)
    return {{}, integer_columns(values)};
  if (precision == Precision::split) return {values.to(at::kDouble), {}};
  if (precision == Precision::bfloat16 && !sums_widely(values)) return {values.to(at::kFloat), {}};
  return {values, {}};
}

void add_product(at::Tensor& sums, const PanelOperand& columns, const PanelOperand& rows,
                 Precision precision) {
  if (sums.numel() == 0) return;
  if (columns.integers) return add_integer_product(sums, *columns.integers, *rows.integers);
  if (columns.values.size(0) == 0) return;
  if (multiplies_doubles(precision))
    sums.addmm_(columns.values.t(), rows.values);
  else
    sums.add_(float_product(columns.values.t(), rows.values));
}

}  // namespace headspan
