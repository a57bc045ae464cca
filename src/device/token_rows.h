// Copies captured values into the rows of a collector on a device. The values are this rank's heads of all
// tokens of its tensor-parallel group; the rows are all heads of this rank's tokens. For the code in app,
// which does not include LibTorch.
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
/// [this rank's share of the kept tokens, columns], from column `first_column` on. The heads of all ranks of
/// `comm` follow each other in rank order; every rank has the same number. If the buffers of `comm` are not
/// on the device, values are copied there and back. Collective over comm.
void copy_tokens(const DeviceComm& comm, const at::Tensor& values, const at::Tensor& kept,
                 std::int64_t first_column, const at::Tensor& rows);

/// Calls `use` with the values as T in host memory. T: double or float.
template <class T>
void on_host(const at::Tensor& values, const std::function<void(const T*)>& use);

}  // namespace headspan
