// Attention of some queries of one sequence over its stored blocks, read where they lie (design section 12):
// a query is folded with the map of its head and meets stored columns as they are; what attention gathers of
// stored values is lifted once. Coded columns are unpacked a page at a time, once for all heads that read
// them. One thread, but for BLAS.
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
  at::Tensor exact;   ///< [tokens, kv_heads, d] of the compute type: the first ones; undefined: none
  at::Tensor recent;  ///< likewise, from token recent_begin to that of the last query; undefined: none
  std::int64_t recent_begin = 0;
  std::int64_t exact_recent = 0;  ///< how many of `recent` a query meets, up to its own
};

/// q: [tokens, heads, d] in float32 or float64, roped; seen: [tokens], how many tokens of the views each of
/// them sees, the exact ones first, ascending. `out` is of the same shape.
void attend_pages(const at::Tensor& q, const std::vector<std::int64_t>& seen, const StreamView& keys,
                  const StreamView& values, const PartialAttention& out);

/// Over nothing but the tokens of the views that are as they are, of which each query must see one. The first
/// query stands at `position` of the sequence.
void attend_exact(const at::Tensor& q, std::int64_t position, const StreamView& keys,
                  const StreamView& values, const PartialAttention& out);

/// The heads that a layer gives in place of tokens begin .. end of the pages: [end - begin, kv_heads, d].
at::Tensor lift_pages(const StreamView& view, std::int64_t kv_heads, std::int64_t d, std::int64_t begin,
                      std::int64_t end, at::ScalarType dtype);

}  // namespace headspan
