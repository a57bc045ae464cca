// Attention of some queries of one sequence over its stored blocks, in place. The decoder matrices of keys
// are absorbed into the queries, which then multiply stored columns as they are (as in multi-head latent
// attention). Stored columns of values are summed with their weights first, and only the sum is
// reconstructed. Coded columns are unpacked a page at a time, once for all heads that read them. Runs on one
// thread, except for BLAS.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/cache/block_pages.h"
#include "model/cache/cache_plan.h"
#include "model/cache/partial_attention.h"

namespace headspan {

/// One stream of one sequence in one layer.
struct StreamView {
  const CachedLayer* layer;
  std::vector<const BlockPages*> pages;  ///< of each slice of the layer
  at::Tensor exact;  ///< [tokens, kv_heads, d] of the compute type: the first ones; undefined: none
  at::Tensor
      recent;  ///< [tokens, kv_heads, d]: from token recent_begin to that of the last query; undefined: none
  std::int64_t recent_begin = 0;
  ExactTokens kept;  ///< which tokens a query reads as they are
  at::Tensor
      starts;  ///< [tokens, kv_heads, d] of the compute type: those that begin a document; or undefined
  std::vector<std::int64_t>
      start_tokens;  ///< their indices, ascending; with undefined `starts` they are hidden
};

/// Writes the attention of q: [tokens, heads, d], in float32 or float64 with rotary embedding, to `out`, of
/// the same shape. Query i sees the first seen[i] tokens of the views, the exact ones first; `seen` ascends.
void attend_pages(const at::Tensor& q, const std::vector<std::int64_t>& seen, const StreamView& keys,
                  const StreamView& values, const PartialAttention& out);

/// Attends only to tokens that are kept as they are; each query must see at least one. `position`: that of
/// the first query in the sequence.
void attend_exact(const at::Tensor& q, std::int64_t position, const StreamView& keys,
                  const StreamView& values, const PartialAttention& out);

/// Returns tokens begin .. end of the pages as the layer reconstructs them: [end - begin, kv_heads, d].
at::Tensor decode_pages(const StreamView& view, std::int64_t d, std::int64_t begin, std::int64_t end,
                        at::ScalarType dtype);

}  // namespace headspan
