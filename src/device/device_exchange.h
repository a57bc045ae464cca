// Brings a panel of tokens on devices to the ranks that multiply it: what dist/panel_exchange.h is for values
// in host memory, with the same operands. It has no overlap of its own: on GPUs its messages are put behind
// the product of the panel before and the host goes on at once.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "dist/device_comm.h"
#include "dist/matrix.h"

namespace headspan {

/// The tokens of all ranks, by rank, each contiguous.
struct DeviceOperands {
  at::Tensor rows;     ///< [tokens, local rows]
  at::Tensor columns;  ///< [tokens, local columns]; the same tensor as `rows` on a 1x1 grid
};

class DeviceExchange {
 public:
  /// For panels of `columns` in blocks on the grid, on `device`. `comm` joins the ranks of the grid; where
  /// its buffers do not lie on the device, values are taken there and back. Both must outlive the object.
  DeviceExchange(const Grid& grid, const DeviceComm& comm, std::int64_t columns, std::int64_t block,
                 at::Device device);

  /// values: [this rank's tokens, D]; tokens may differ between ranks and be 0. Collective over the grid.
  DeviceOperands gather(const at::Tensor& values) const;

 private:
  struct Axis {
    std::vector<at::Tensor> columns;  // by part: which of D it has
  };
  Axis axis(const BlockCyclic& distribution) const;
  at::Tensor gather_axis(const Axis& axis, const at::Tensor& values, bool by_row) const;

  const Grid* grid_;
  const DeviceComm* comm_;
  at::Device device_;
  Axis rows_, columns_;
};

}  // namespace headspan
