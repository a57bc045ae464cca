// Attention over some of the tokens that queries see, in a form in which parts can be combined: values whose
// weights sum to one over these tokens, and the logarithm of the sum of exp(score) by which the weights were
// divided. Tensor-parallel ranks that hold different tokens compute parts for the heads of all ranks and send
// each part to the rank of its head.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/comm/device_comm.h"

namespace headspan {

/// Contiguous tensors.
struct PartialAttention {
  at::Tensor values;   ///< [tokens, heads, d]; zero where a query sees none of the tokens
  at::Tensor log_sum;  ///< [tokens, heads]; -infinity where none. Undefined if nothing is to be combined

  /// Returns attention over no tokens, for queries q: [tokens, heads, d].
  static PartialAttention none(const at::Tensor& q);

  /// Returns the part for queries first .. first + count, in the same memory.
  PartialAttention queries(std::int64_t first, std::int64_t count) const;
};

/// Returns the queries of all ranks: [tokens, heads of all ranks, d]. q: [tokens, heads of this rank, d], of
/// one shape on all ranks. Collective over comm.
at::Tensor gather_queries(const DeviceComm& comm, const at::Tensor& q);

/// Returns the attention of this rank's heads over all tokens, [tokens, heads of this rank, d]. `shared`: for
/// the heads of all ranks over the tokens of this rank; `local`: for the heads of this rank over further
/// tokens, with undefined tensors where there are none. Collective over comm.
at::Tensor join_attention(const DeviceComm& comm, const PartialAttention& shared,
                          const PartialAttention& local);

}  // namespace headspan
