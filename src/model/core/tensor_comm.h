// Sums and concatenations of tensors over the ranks of a communicator. Tensors that do not lie where the
// communicator's buffers do are taken there and back.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/comm/device_comm.h"

namespace headspan {

/// In place the sum of `values` over the ranks, of the same shape on each; half precision is summed in
/// float32. Collective over comm.
void sum_over(const DeviceComm& comm, at::Tensor& values);

/// The same in two steps, between which other work goes on where buffers lie on GPUs: `values` is the sum
/// behind `finish`. Nothing is begun on one rank.
class BegunSum {
 public:
  BegunSum(const DeviceComm& comm, const at::Tensor& values);
  /// Local.
  const at::Tensor& finish();

 private:
  const DeviceComm* comm_;
  at::Tensor values_, sums_;
  DeviceComm::Request ticket_ = 0;
};

/// The columns of all ranks side by side, in rank order; `part`: [rows, columns of this rank]. Collective.
at::Tensor join_columns(const DeviceComm& comm, const at::Tensor& part);

/// What each rank gives, of one shape: [ranks, ...]. Collective.
at::Tensor gather_all(const DeviceComm& comm, const at::Tensor& own);

/// parts: [ranks, ...], of which the r-th goes to rank r; what rank r sent here takes its place. Collective.
at::Tensor exchange(const DeviceComm& comm, const at::Tensor& parts);

}  // namespace headspan
