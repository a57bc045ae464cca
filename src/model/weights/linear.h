// A linear layer: one matrix and perhaps a bias. The matrix may be kept in bfloat16 under a forward in
// float32; it is widened as it is used, so that a decode step, which does nothing but read matrices, reads
// half the bytes and gives the same digits.
#pragma once

#include <ATen/core/Tensor.h>

namespace headspan {

/// y = x weight^T + bias; weight: [outputs, inputs], bias: [outputs] or undefined.
struct Linear {
  at::Tensor weight;
  at::Tensor bias;
};

/// x: [tokens, inputs]; returns [tokens, outputs] of x's dtype. Sums of float32 and bfloat16 are in float32.
at::Tensor apply(const Linear& linear, const at::Tensor& x);

/// x: [tokens, inputs] times matrix: [inputs, outputs], both contiguous and of one dtype.
at::Tensor product(const at::Tensor& x, const at::Tensor& matrix);

}  // namespace headspan
