#include "model/cache/partial_attention.h"

#include <limits>

#include <ATen/ATen.h>

#include "model/core/tensor_comm.h"

namespace headspan {
namespace {

/// Returns values and log_sum in one tensor: [tokens, heads, d + 1].
at::Tensor packed(const PartialAttention& part) {
  return at::cat({part.values, part.log_sum.unsqueeze(2)}, 2);
}

}  // namespace

PartialAttention PartialAttention::none(const at::Tensor& q) {
  return {at::zeros_like(q),
          at::full({q.size(0), q.size(1)}, -std::numeric_limits<double>::infinity(), q.options())};
}

PartialAttention PartialAttention::queries(std::int64_t first, std::int64_t count) const {
  return {values.narrow(0, first, count), log_sum.defined() ? log_sum.narrow(0, first, count) : at::Tensor()};
}

at::Tensor gather_queries(const DeviceComm& comm, const at::Tensor& q) {
  return gather_all(comm, q)
      .transpose(0, 1)
      .flatten(1, 2)
      .contiguous();  // with one head per rank the result is still a view
}

at::Tensor join_attention(const DeviceComm& comm, const PartialAttention& shared,
                          const PartialAttention& local) {
  const std::int64_t tokens = shared.values.size(0), d = shared.values.size(2);
  at::Tensor parts = exchange(comm, packed(shared).view({tokens, comm.size(), -1, d + 1}).transpose(0, 1));
  if (local.values.defined()) parts = at::cat({parts, packed(local).unsqueeze(0)});
  const at::Tensor shares = at::softmax(parts.narrow(3, d, 1), 0);  // each part's share of the sum
  return (parts.narrow(3, 0, d) * shares).sum(0);
}

}  // namespace headspan
