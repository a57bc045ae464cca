// The eigenvalues of a symmetric matrix on a device, in ATen: the same code on a GPU and in host memory. The
// matrix is one rank's, not distributed.
#pragma once

#include <c10/core/Device.h>

#include "stats/layers/overlap.h"

namespace headspan {

/// Returns a SymmetricEigenvalues that runs on the device. It throws c10::Error, for example if the device is
/// out of memory.
SymmetricEigenvalues device_eigenvalues(at::Device device);

/// Returns the bytes of device memory that it needs at most for a matrix [n, n].
std::int64_t device_eigenvalue_bytes(std::int64_t n);

}  // namespace headspan
