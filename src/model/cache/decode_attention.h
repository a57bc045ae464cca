// Attention in a decode step: each of some sequences has one query, which attends to its stored blocks. The
// result is that of page_attention.h. A decode step consists of many small products, for which general matrix
// products and their tensors would take longer than the arithmetic. The decoder matrices of a layer are read
// once for all sequences. All is float32, with the kernels of model/kernels/skinny_gemm.h and
// model/kernels/quantized_gemm.h. A fused kernel for GPUs is to be compared with this.
#pragma once

#include "model/cache/page_attention.h"

namespace headspan {

/// Does what attend_pages does, for each sequence s: its query q[s] sees seen[s] tokens of the views,
/// possibly none. q: [sequences, heads, d], contiguous, float32; keys, values: [sequences], all of one layer.
/// Runs on all threads; meant for heads / kv_heads of at most kMostSkinnyRows.
void attend_step(const at::Tensor& q, const std::vector<std::int64_t>& seen,
                 const std::vector<StreamView>& keys, const std::vector<StreamView>& values,
                 const PartialAttention& out);

}  // namespace headspan
