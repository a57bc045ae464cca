// Brings a panel of tokens on devices to the ranks that multiply it: what dist/matrix/panel_exchange.h is for
// values in host memory, with the same operands. On GPUs the messages of a panel are under way while the
// product of the one before is formed, where that is put on the default stream between `begin` and `finish`.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "dist/comm/device_comm.h"
#include "dist/matrix/matrix.h"

namespace headspan {

/// The tokens of all ranks, by rank, each contiguous.
struct DeviceOperands {
  at::Tensor rows;     ///< [tokens, local rows]
  at::Tensor columns;  ///< [tokens, local columns]; the same tensor as `rows` on a 1x1 grid
};

/// A panel that is under way. What it sends must live until it is finished.
struct DevicePanel {
  std::vector<at::Tensor> sent;
  DeviceOperands received;  // where the communicator's buffers lie; no columns where the grid has one row
  std::vector<DeviceComm::Request> tickets;
};

class DeviceExchange {
 public:
  /// For panels of `columns` in blocks on the grid, on `device`. `comm` joins the ranks of the grid; where
  /// its buffers do not lie on the device, values are taken there and back. Both must outlive the object.
  DeviceExchange(const Grid& grid, const DeviceComm& comm, std::int64_t columns, std::int64_t block,
                 at::Device device);

  /// values: [this rank's tokens, D]; tokens may differ between ranks and be 0. Collective over the grid.
  DevicePanel begin(const at::Tensor& values) const;
  /// Local.
  DeviceOperands finish(const DevicePanel& panel) const;

 private:
  struct Axis {
    std::vector<at::Tensor> columns;  // by part: which of D it has
  };
  Axis axis(const BlockCyclic& distribution) const;
  at::Tensor begin_axis(const Axis& axis, const at::Tensor& values, const std::vector<std::int64_t>& counts,
                        bool by_row, DevicePanel& panel) const;

  const Grid* grid_;
  const DeviceComm* comm_;
  at::Device device_;
  Axis rows_, columns_;
};

}  // namespace headspan
