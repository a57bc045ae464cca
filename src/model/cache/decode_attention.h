// Attention of one query for each of some sequences over its stored blocks: what page_attention.h does, for
// the steps of decoding, where a general product or a tensor for each of the many small products would take
// longer than the work. The decoder matrices of a layer are read once for all sequences. In float32, with the
// kernels of model/kernels/skinny_gemm.h and model/kernels/quantized_gemm.h.
#pragma once

#include "model/cache/page_attention.h"

namespace headspan {

/// Does what attend_pages does, for each sequence s: its query q[s] sees seen[s] tokens of the views,
/// possibly none. q: [sequences, heads, d], contiguous, float32; keys, values: [sequences], all of one layer.
/// On all threads; best where heads / kv_heads is at most kMostSkinnyRows.
void attend_step(const at::Tensor& q, const std::vector<std::int64_t>& seen,
                 const std::vector<StreamView>& keys, const std::vector<StreamView>& values,
                 const PartialAttention& out);

}  // namespace headspan
