// Copies captured values into the rows of a collector on a device: from this rank's heads of all tokens of
// its tensor-parallel group, to all heads of this rank's tokens. For app, which does not include LibTorch.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "dist/comm/device_comm.h"

namespace headspan {

/// Returns row numbers as a tensor on the device.
at::Tensor row_numbers(const std::vector<std::int64_t>& rows, at::Device device);

/// Copies the tokens `kept` (row_numbers) of values: [tokens, ...], this rank's heads of one layer, to rows:
/// [this rank's share of the kept tokens, columns], from column `first_column` on, with the heads of all
/// ranks of `comm` in rank order, the same number of each. If the buffers of `comm` do not lie on the device,
/// values are copied there and back. Collective over comm.
void copy_tokens(const DeviceComm& comm, const at::Tensor& values, const at::Tensor& kept,
                 std::int64_t first_column, const at::Tensor& rows);

/// Calls `use` with the values as T in host memory. T: double or float.
template <class T>
void on_host(const at::Tensor& values, const std::function<void(const T*)>& use);

}  // namespace headspan
