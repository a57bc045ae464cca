// Attention of a few queries of one sequence over its stored blocks: what page_attention does, for the steps
// of a decoding, where a general product or a tensor for each of the many small ones would take longer than
// the work. In float32, on one thread, by the kernels of model/few_rows.h.
#pragma once

#include "model/page_attention.h"

namespace headspan {

/// As attend_pages. q: [tokens, heads, d], contiguous, float32; best where tokens * heads / kv_heads is no
/// more than kFewRows.
void attend_few(const at::Tensor& q, const std::vector<std::int64_t>& seen, const StreamView& keys,
                const StreamView& values, const PartialAttention& out);

}  // namespace headspan
