// Attention of one query of each of some sequences over its stored blocks: what page_attention does, for the
// steps of a decoding, where a general product or a tensor for each of the many small ones would take longer
// than the work. The maps of a layer are read once for all sequences. In float32, by the kernels of
// model/kernels/skinny_gemm.h and model/kernels/quantized_gemm.h.
#pragma once

#include "model/cache/page_attention.h"

namespace headspan {

/// As attend_pages for each sequence s: its query q[s] sees seen[s] tokens of the views, none where that is
/// 0. q: [sequences, heads, d], contiguous, float32; keys, values: [sequences], all of one layer. On all
/// threads; best where heads / kv_heads is no more than kMostSkinnyRows.
void attend_step(const at::Tensor& q, const std::vector<std::int64_t>& seen,
                 const std::vector<StreamView>& keys, const std::vector<StreamView>& values,
                 const PartialAttention& out);

}  // namespace headspan
