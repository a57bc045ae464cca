// The activations of MLPs, which work in place or not on float32, float64 and half types as transformers
// computes them.
#pragma once

#include <ATen/core/Tensor.h>

#include "model/core/model_config.h"
#include "model/weights/weights.h"

namespace headspan {

/// Returns act(x), by functions that LibTorch can differentiate. silu: x / (1 + exp(-x)); gelu: x Phi(x), or
/// with tanh in place of the error function; xIELU (arXiv 2411.13010): for x > 0 a_p x^2 + beta x, else a_n
/// (expm1(min(x, eps)) - x) + beta x, where a_p = softplus(alpha_p) and a_n = beta + softplus(alpha_n);
/// `xielu` is for it alone.
at::Tensor activated(Activation activation, const XieluWeights& xielu, const at::Tensor& x);

/// Sets x = act(x).
void activate(Activation activation, const XieluWeights& xielu, at::Tensor& x);

/// Sets gate = act(gate) * up.
void activate_and_multiply(Activation activation, const XieluWeights& xielu, at::Tensor& gate,
                           const at::Tensor& up);

}  // namespace headspan
