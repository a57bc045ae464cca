// Sends a panel of tokens on devices to the ranks that multiply it. Does what dist/matrix/panel_exchange.h
// does for values in host memory, with the same operands. On GPUs the messages of a panel overlap the product
// of the previous one, if that product is put on the default stream between `start` and `finish`. The product
// itself is in device/device_gram.h.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "dist/comm/device_comm.h"
#include "dist/matrix/matrix.h"

namespace headspan {

/// The tokens of all ranks, in rank order.
struct DeviceOperands {
  at::Tensor rows;     ///< [tokens, local rows]
  at::Tensor columns;  ///< [tokens, local columns]; the same tensor as `rows` on a 1x1 grid
};

/// A panel that is being exchanged. It must live until it is finished.
struct DevicePanel {
  std::vector<at::Tensor> sent;
  DeviceOperands received;  // in the communicator's memory; without columns if the grid has one row
  std::vector<DeviceComm::Request> requests;
};

class DeviceExchange {
 public:
  /// For panels of `columns` columns on `device`, distributed over the grid in blocks of `block`. `comm`
  /// joins the ranks of the grid; if its buffers are not on the device, values are copied there and back.
  /// `grid` and `comm` must outlive the object.
  DeviceExchange(const Grid& grid, const DeviceComm& comm, std::int64_t columns, std::int64_t block,
                 at::Device device);

  /// Starts the exchange of values: [this rank's tokens, D]; tokens may differ between ranks and be 0.
  /// Collective over the grid.
  DevicePanel start(const at::Tensor& values) const;
  /// Returns the operands once they have arrived. Local.
  DeviceOperands finish(const DevicePanel& panel) const;

 private:
  using Axis = std::vector<at::Tensor>;  // for each process row or column: which columns of D it has
  Axis axis(const BlockCyclic& distribution) const;
  at::Tensor start_axis(const Axis& axis, const at::Tensor& values, const std::vector<std::int64_t>& counts,
                        bool by_row, DevicePanel& panel) const;

  const Grid* grid_;
  const DeviceComm* comm_;
  at::Device device_;
  Axis rows_, columns_;
};

}  // namespace headspan
