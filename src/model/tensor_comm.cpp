#include "model/tensor_comm.h"

#include <ATen/ATen.h>

namespace headspan {

void sum_over(const Comm& comm, at::Tensor& values) {
  if (comm.size() == 1) return;
  const bool wide = values.scalar_type() == at::kDouble;
  at::Tensor host = values.to(at::kCPU, wide ? at::kDouble : at::kFloat).contiguous();
  if (wide)
    comm.sum(host.data_ptr<double>(), host.numel());
  else
    comm.sum(host.data_ptr<float>(), host.numel());
  if (!host.is_same(values)) values.copy_(host);
}

at::Tensor join_columns(const Comm& comm, const at::Tensor& part) {
  if (comm.size() == 1) return part;
  const std::vector<std::int64_t> widths = comm.all_gather(part.size(1));
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::int64_t width = widths[static_cast<std::size_t>(rank)];
    at::Tensor columns = rank == comm.rank()
                             ? part.to(at::kCPU).contiguous()
                             : at::empty({part.size(0), width}, at::dtype(part.scalar_type()));
    comm.broadcast(static_cast<char*>(columns.data_ptr()), static_cast<std::int64_t>(columns.nbytes()), rank);
    parts.push_back(columns);
  }
  return at::cat(parts, 1).to(part.device());
}

at::Tensor gather_all(const Comm& comm, const at::Tensor& own) {
  const at::Tensor host = own.to(at::kCPU).contiguous();
  std::vector<std::int64_t> shape = host.sizes().vec();
  shape.insert(shape.begin(), comm.size());
  at::Tensor all = at::empty(shape, host.options());
  comm.all_gather(static_cast<const char*>(host.data_ptr()), static_cast<std::int64_t>(host.nbytes()),
                  static_cast<char*>(all.data_ptr()));
  return all.to(own.device());
}

at::Tensor exchange(const Comm& comm, const at::Tensor& parts) {
  const at::Tensor host = parts.to(at::kCPU).contiguous();
  at::Tensor received = at::empty_like(host);
  comm.exchange(static_cast<const char*>(host.data_ptr()),
                static_cast<std::int64_t>(host.nbytes()) / comm.size(),
                static_cast<char*>(received.data_ptr()));
  return received.to(parts.device());
}

}  // namespace headspan
