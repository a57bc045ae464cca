// Eigenvalues on devices against a closed form.
#include <cmath>

#include "device/device_eigenvalues.h"
#include "support/on_device.h"
#include "support/tables.h"

namespace headspan {
namespace {

constexpr double kPi = 3.14159265358979323846;

using DeviceEigenvalues = OnDevice;
INSTANTIATE_TEST_SUITE_P(On, DeviceEigenvalues, testing::Values(at::kCPU, at::kCUDA), name_of_device);

// The matrix with 2 on the diagonal and -1 beside it has the eigenvalues 2 + 2 cos(k pi / (n + 1)), k = 1 ..
// n. Only its lower triangle is read.
TEST_P(DeviceEigenvalues, OfATridiagonalMatrix) {
  for (const std::int64_t n : {1, 2, 31, 100}) {
    std::vector<double> a(static_cast<std::size_t>(n * n), 0), expected;
    for (std::int64_t j = 0; j < n; ++j) {
      for (std::int64_t i = 0; i < j; ++i) a[static_cast<std::size_t>(i + j * n)] = 1e9;
      a[static_cast<std::size_t>(j + j * n)] = 2;
      if (j + 1 < n) a[static_cast<std::size_t>(j + 1 + j * n)] = -1;
      expected.push_back(2 + 2 * std::cos(static_cast<double>(j + 1) * kPi / static_cast<double>(n + 1)));
    }
    expect_near(device_eigenvalues(device_)(a.data(), n), expected, 1e-14 * static_cast<double>(n),
                "eigenvalues");
  }
}

}  // namespace
}  // namespace headspan
