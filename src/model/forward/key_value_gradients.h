// What the loss of a model says of its keys and values: gradients of log-probabilities, by LibTorch's
// autograd, layer by layer from the last one on. The products of these gradients estimate the Fisher
// information, by which errors of keys and values cost KL divergence (app/archive/loss_metrics.h). The
// forward pass is a plain one, beside transformer.h's, because its kernels know no gradients. On one
// tensor-parallel rank.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "model/forward/transformer.h"

namespace headspan {

/// Receives the gradients of a layer's keys, before the rotary embedding, or values: [tokens, kv_heads, d],
/// in float64 if the model is, else in float32.
using GradientSink = std::function<void(std::int64_t layer, Stream stream, const at::Tensor& gradients)>;

/// Draws a token after each row of the batch from the model's distribution, the first one whose cumulative
/// probability exceeds the row's uniform number in [0, 1), and passes on the gradients of the sum of their
/// log-probabilities, last layer first. The model is whole, on one rank. Local.
void key_value_gradients(const Transformer& model, const PackedBatch& batch,
                         const std::vector<double>& uniforms, const GradientSink& sink);

/// Returns the sum of g g^T over the tokens from `first` on, of each head: [kv_heads, d, d]. Local.
std::vector<double> gradient_products(const at::Tensor& gradients, std::int64_t first);

/// Returns the next-token logits of the forward pass that is differentiated: [tokens, vocabulary]. Local.
at::Tensor plain_logits(const Transformer& model, const PackedBatch& batch);

}  // namespace headspan
