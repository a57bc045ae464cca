#include "model/core/tensor_comm.h"

#include <ATen/ATen.h>

namespace headspan {
namespace {

/// Returns the values contiguous and on the device of the communicator's buffers.
at::Tensor buffer(const DeviceComm& comm, const at::Tensor& values) {
  return values
      .to(comm.gpu() ? at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*comm.gpu()))
                     : at::Device(at::kCPU))
      .contiguous();
}

std::int64_t bytes_of(const at::Tensor& values) { return static_cast<std::int64_t>(values.nbytes()); }

}  // namespace

void sum_over(const DeviceComm& comm, at::Tensor& values) { PendingSum(comm, values).finish(); }

PendingSum::PendingSum(const DeviceComm& comm, const at::Tensor& values) : comm_(&comm), values_(values) {
  if (comm.size() == 1) return;
  const bool wide = values.scalar_type() == at::kDouble;
  sums_ = buffer(comm, values.to(wide ? at::kDouble : at::kFloat));
  request_ = wide ? comm.begin_sum(sums_.data_ptr<double>(), sums_.numel())
                  : comm.begin_sum(sums_.data_ptr<float>(), sums_.numel());
}

const at::Tensor& PendingSum::finish() {
  if (!sums_.defined()) return values_;
  comm_->wait(request_);
  if (!sums_.is_same(values_)) values_.copy_(sums_);
  return values_;
}

at::Tensor join_columns(const DeviceComm& comm, const at::Tensor& part) {
  if (comm.size() == 1) return part;
  const std::vector<std::int64_t> widths = comm.host().all_gather(part.size(1));
  const at::Tensor send = buffer(comm, part);
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const std::int64_t width = widths[static_cast<std::size_t>(rank)];
    at::Tensor columns = rank == comm.rank() ? send : at::empty({part.size(0), width}, send.options());
    comm.broadcast(columns.data_ptr(), bytes_of(columns), rank);
    parts.push_back(columns);
  }
  return at::cat(parts, 1).to(part.device());
}

at::Tensor gather_all(const DeviceComm& comm, const at::Tensor& part) {
  const at::Tensor send = buffer(comm, part);
  std::vector<std::int64_t> shape = send.sizes().vec();
  shape.insert(shape.begin(), comm.size());
  at::Tensor all = at::empty(shape, send.options());
  comm.all_gather(send.data_ptr(), bytes_of(send), all.data_ptr());
  return all.to(part.device());
}

at::Tensor exchange(const DeviceComm& comm, const at::Tensor& parts) {
  const at::Tensor send = buffer(comm, parts);
  at::Tensor received = at::empty_like(send);
  comm.exchange(send.data_ptr(), bytes_of(send) / comm.size(), received.data_ptr());
  return received.to(parts.device());
}

}  // namespace headspan
