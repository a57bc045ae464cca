#include "model/forward/activation.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include "model/kernels/row_kernels.h"

namespace headspan {
namespace {

at::Tensor xielu_of(const XieluWeights& weights, const at::Tensor& x) {
  const at::Tensor beta = weights.beta, positive = at::softplus(weights.alpha_p),
                   negative = beta + at::softplus(weights.alpha_n);
  return at::where(x.gt(0), positive * x * x + beta * x,
                   (at::expm1(at::min(x, weights.eps)) - x) * negative + beta * x);
}

}  // namespace

at::Tensor activated(Activation activation, const XieluWeights& xielu, const at::Tensor& x) {
  switch (activation) {
    case Activation::silu:
      return at::silu(x);
    case Activation::gelu:
      return at::gelu(x, "none");
    case Activation::gelu_tanh:
      return at::gelu(x, "tanh");
    case Activation::xielu:
      return xielu_of(xielu, x);
  }
  return x;
}

void activate(Activation activation, const XieluWeights& xielu, at::Tensor& x) {
  if (!x.is_cpu() || x.scalar_type() != at::kHalf) {
    x = activated(activation, xielu, x);
    return;
  }
  // Some versions of LibTorch lack these functions for float16 on the CPU.
  XieluWeights wide;
  if (activation == Activation::xielu)
    wide = {xielu.alpha_p.to(at::kFloat), xielu.alpha_n.to(at::kFloat), xielu.beta.to(at::kFloat),
            xielu.eps.to(at::kFloat)};
  x = activated(activation, wide, x.to(at::kFloat)).to(at::kHalf);
}

void activate_and_multiply(Activation activation, const XieluWeights& xielu, at::Tensor& gate,
                           const at::Tensor& up) {
  if (activation != Activation::silu || !gate.is_cpu() || gate.scalar_type() != at::kFloat) {
    activate(activation, xielu, gate);
    gate.mul_(up);
    return;
  }
  float* gates = gate.data_ptr<float>();
  const float* ups = up.data_ptr<float>();
  at::parallel_for(0, gate.numel(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    silu_times(gates + begin, ups + begin, end - begin);
  });
}

}  // namespace headspan
