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

// Whether LibTorch multiplies integers, and bfloat16 with a result in FP32, on GPUs: from 2.8 on.
constexpr bool kWideSums = TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8);

/// How many tokens are shifted at once: a copy of the whole panel in FP64 would take more memory than the
/// panel.
constexpr std::int64_t kTokens = 256;

/// Returns whether products of these values can have a wider result.
bool has_wide_sums(const at::Tensor& values) { return kWideSums && values.is_cuda(); }

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
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)  // needed on GPUs
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
  static_cast<void>(device);  // earlier versions have this in the CUDA library only
#endif
}

std::vector<double> to_vector(const at::Tensor& values) {
  const at::Tensor host = values.flatten().to(at::kCPU).contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
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

std::int64_t panel_value_bytes(Precision precision) {
  return static_cast<std::int64_t>(c10::elementSize(panel_type(precision)));
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
    const at::Tensor single = shifted.to(at::kFloat);          // bfloat16, too, is rounded from FP32
    if (precision != Precision::split || has_wide_sums(in)) {  // integers hold more than hi + lo
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
  if (precision == Precision::split && has_wide_sums(values) && values.size(0) > 0)
    return {{}, integer_columns(values)};
  if (precision == Precision::split) return {values.to(at::kDouble), {}};
  if (precision == Precision::bfloat16 && !has_wide_sums(values)) return {values.to(at::kFloat), {}};
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
