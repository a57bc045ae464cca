// Sums and concatenates tensors over the ranks of a communicator. Tensors on another device than the
// communicator's buffers are copied there and back.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/comm/device_comm.h"

namespace headspan {

/// Replaces `values`, which have the same shape on every rank, by their sum over the ranks. Half precision is
/// summed in float32. Collective over comm.
void sum_over(const DeviceComm& comm, at::Tensor& values);

/// The same sum in two steps. If the buffers are on GPUs, other work can go on in between.
class PendingSum {
 public:
  /// Starts the sum; `values` must not be touched until finish(). Collective over comm.
  PendingSum(const DeviceComm& comm, const at::Tensor& values);
  /// Waits for the sum and returns `values`, which now hold it. Local.
  const at::Tensor& finish();

 private:
  const DeviceComm* comm_;
  at::Tensor values_, sums_;
  DeviceComm::Request request_ = 0;
};

/// Returns the columns of all ranks side by side, in rank order; `part`: [rows, columns of this rank].
/// Collective over comm.
at::Tensor join_columns(const DeviceComm& comm, const at::Tensor& part);

/// Returns the parts of all ranks, which have one shape: [ranks, ...]. Collective over comm.
at::Tensor gather_all(const DeviceComm& comm, const at::Tensor& part);

/// Sends parts[r] to rank r and returns what rank r sent here as element r. parts: [ranks, ...]. Collective
/// over comm.
at::Tensor exchange(const DeviceComm& comm, const at::Tensor& parts);

}  // namespace headspan
