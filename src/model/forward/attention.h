// Causal attention of packed sequences. Query head i reads KV head i / (heads / kv_heads). On the CPU KV
// heads are never repeated in memory. LibTorch 2 has a fused kernel; with earlier versions queries are
// processed in blocks, so that the scores of a block stay in the processor's cache and keys after a block are
// not touched. On a GPU sequences of equal length go through the fused kernel together. Fused kernels know
// neither windows nor caps of scores; such layers take the other ways.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/core/model_config.h"

namespace headspan {

/// Returns the attention of every sequence over itself: [tokens, heads, d]. q: [tokens, heads, d], k and v:
/// [tokens, kv_heads, d], contiguous; the tokens of sequences of `lengths` end to end.
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& lengths, const AttentionRule& rule = {});

/// The same for GPUs; repeats KV heads in float32 and float64. Throws Error if LibTorch is older than 2.5.
at::Tensor side_by_side_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<std::int64_t>& lengths);

/// The same without a fused kernel.
at::Tensor blocked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<std::int64_t>& lengths, const AttentionRule& rule = {});

/// The same on any device, one sequence at a time, with all of its scores in memory.
at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& lengths, const AttentionRule& rule);

/// Returns the weights that the queries of one sequence give to its keys: [group, query, key], in float64 if
/// q is, else in float32. q: [length, group, d], k: [length, d], on any device.
at::Tensor attention_weights(const at::Tensor& q, const at::Tensor& k, const AttentionRule& rule);

}  // namespace headspan
