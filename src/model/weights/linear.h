// A linear layer: one matrix and an optional bias. For a forward pass in float32 the matrix may be stored in
// bfloat16. It is widened when it is used, so that a decode step, which mostly reads matrices, reads half the
// bytes and gives the same digits.
#pragma once

#include <ATen/core/Tensor.h>

namespace headspan {

/// y = x weight^T + bias; weight: [outputs, inputs], bias: [outputs] or undefined.
struct Linear {
  at::Tensor weight;
  at::Tensor bias;
};

/// Applies the layer to x: [tokens, inputs]; returns [tokens, outputs] of x's dtype. Products of float32 and
/// bfloat16 are summed in float32.
at::Tensor apply(const Linear& linear, const at::Tensor& x);

/// Returns x: [tokens, inputs] times matrix: [inputs, outputs], both contiguous and of one dtype.
at::Tensor product(const at::Tensor& x, const at::Tensor& matrix);

}  // namespace headspan
