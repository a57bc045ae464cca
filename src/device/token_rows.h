// The way of captured values into the rows of a collector on a device: from the heads that a rank of a
// tensor-parallel row has of all the row's tokens, to all heads of the tokens that it takes.
#pragma once

#include <functional>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include "dist/comm/device_comm.h"

namespace headspan {

/// Numbers of rows as copy_tokens takes them.
at::Tensor row_numbers(const std::vector<std::int64_t>& rows, at::Device device);

/// Copies the tokens `kept` (row_numbers) of values: [tokens, ...], this rank's heads of one layer, into
/// rows: [this rank's slab of the kept tokens, columns], from `first_column` on, where the heads of all ranks
/// of `comm` stand in rank order, of each as many. Where the buffers of `comm` do not lie on the device,
/// values are taken there and back. Collective over comm.
void copy_tokens(const DeviceComm& comm, const at::Tensor& values, const at::Tensor& kept,
                 std::int64_t first_column, const at::Tensor& rows);

/// Calls `use` with the values as T in host memory. T: double or float.
template <class T>
void on_host(const at::Tensor& values, const std::function<void(const T*)>& use);

}  // namespace headspan
