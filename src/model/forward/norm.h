// Norms over the last dimension, computed in float32, in float64 for float64, and rounded to the dtype of x
// as transformers does. RMSNorm: y = x / sqrt(mean(x^2) + eps) * gain. Layer norm: y = (x - mean(x)) /
// sqrt(var(x) + eps) * gain + bias.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/comm/device_comm.h"
#include "model/core/model_config.h"

namespace headspan {

/// Normalises x: [..., width], contiguous, with gain: [width], of one dtype. Returns a new tensor like x.
/// With `round_once` (OLMo-2) the gain is multiplied before the result is rounded to x's dtype, otherwise
/// after. With `comm` the last dimension is split into equal parts over its ranks, and the call is collective
/// over comm.
at::Tensor rms_norm(const at::Tensor& x, const at::Tensor& gain, double eps, bool round_once,
                    const DeviceComm* comm = nullptr);

/// Normalises x: [..., width] with gain and bias: [width], which may be undefined. Returns a new tensor.
at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& gain, const at::Tensor& bias, double eps);

}  // namespace headspan
