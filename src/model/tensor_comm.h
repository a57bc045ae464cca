// Sums and concatenations of tensors over the ranks of a communicator, through host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "dist/mpi.h"

namespace headspan {

/// In place the sum of `values` over the ranks, of the same shape on each; half precision is summed in
/// float32. Collective over comm.
void sum_over(const Comm& comm, at::Tensor& values);

/// The columns of all ranks side by side, in rank order; `part`: [rows, columns of this rank]. Collective.
at::Tensor join_columns(const Comm& comm, const at::Tensor& part);

}  // namespace headspan
