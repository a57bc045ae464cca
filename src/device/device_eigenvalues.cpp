#include "device/device_eigenvalues.h"

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "device/device_values.h"

namespace headspan {

SymmetricEigenvalues device_eigenvalues(at::Device device) {
  return [device](const double* a, std::int64_t n) {
    const c10::DeviceGuard on(device);
    const at::Tensor host = at::from_blob(const_cast<double*>(a), {n, n}, at::kDouble);
    // Column-major is the transpose in ATen: its lower triangle is the upper one there.
    return to_vector(at::linalg_eigvalsh(host.to(device, false, /*copy=*/true), "U").flip(0));
  };
}

std::int64_t device_eigenvalue_bytes(std::int64_t n) {
  constexpr std::int64_t kSquares =
      5;  // the matrix, the copy that is reduced, and the workspace, with two to spare
  return kSquares * static_cast<std::int64_t>(sizeof(double)) * n * n;
}

}  // namespace headspan
