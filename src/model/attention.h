// Causal attention of packed sequences. Query head i reads KV head i / (heads / kv_heads); KV heads are never
// repeated in memory. With LibTorch 2 this is its fused kernel; before that queries are taken in blocks, so
// that the scores of a block stay in the cache, and keys after a block are not touched.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace headspan {

/// q: [tokens, heads, d], k and v: [tokens, kv_heads, d], contiguous; tokens of sequences of `lengths` laid
/// end to end, which do not see each other. Returns [tokens, heads, d].
at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& lengths);

/// What causal_attention uses where there is no fused kernel.
at::Tensor blocked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<std::int64_t>& lengths);

}  // namespace headspan
