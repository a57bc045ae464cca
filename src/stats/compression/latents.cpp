#include "stats/compression/latents.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/scalapack.h"

namespace headspan {
namespace {

constexpr double kFloor = 1e-9;  // of the metric's largest eigenvalue

/// Eigenvectors of every head's metric, with their eigenvalues floored.
struct Roots {
  std::vector<double> vectors;  // [heads, d, d]
  std::vector<double> values;   // [heads, d]
};

Roots factor(const std::vector<double>& metric, std::int64_t heads, std::int64_t d) {
  Roots roots{metric, {}};
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::vector<double> values = local_eigenvectors(&roots.vectors[to_size(h * d * d)], d);
    roots.values.insert(roots.values.end(), values.begin(), values.end());
  }
  const double largest = *std::max_element(roots.values.begin(), roots.values.end());
  for (double& value : roots.values) value = std::max(value, largest > 0 ? kFloor * largest : 1.0);
  return roots;
}

/// V diag(value^power) V^T of head h: [d, d].
std::vector<double> power_of(const Roots& roots, std::int64_t h, std::int64_t d, double power) {
  const double* v = &roots.vectors[to_size(h * d * d)];
  std::vector<double> scaled(v, v + d * d), result(to_size(d * d));
  for (std::int64_t j = 0; j < d; ++j)
    for (std::int64_t i = 0; i < d; ++i)
      scaled[to_size(i + j * d)] *= std::pow(roots.values[to_size(h * d + j)], power);
  const int n = to_int(d);
  const double one = 1, zero = 0;
  dgemm_("N", "T", &n, &n, &n, &one, scaled.data(), &n, v, &n, &zero, result.data(), &n);
  return result;
}

/// Rows of head h of a: [D, D] become root times them.
void multiply_rows(const std::vector<double>& root, std::int64_t h, std::int64_t d, std::vector<double>& a,
                   std::int64_t size) {
  const int n = to_int(d), columns = to_int(size), ld = to_int(size);
  const double one = 1, zero = 0;
  std::vector<double> product(to_size(d * size));
  double* rows = &a[to_size(h * d)];
  dgemm_("N", "N", &n, &columns, &n, &one, root.data(), &n, rows, &ld, &zero, product.data(), &n);
  for (std::int64_t j = 0; j < size; ++j) std::copy_n(&product[to_size(j * d)], d, rows + j * size);
}

void mirror(std::vector<double>& a, std::int64_t size) {
  for (std::int64_t j = 0; j < size; ++j)
    for (std::int64_t i = 0; i < j; ++i) a[to_size(i + j * size)] = a[to_size(j + i * size)];
}

void transpose(std::vector<double>& a, std::int64_t size) {
  for (std::int64_t j = 0; j < size; ++j)
    for (std::int64_t i = 0; i < j; ++i) std::swap(a[to_size(i + j * size)], a[to_size(j + i * size)]);
}

}  // namespace

Latents make_latents(std::vector<double> covariance, const std::vector<double>& metric, std::int64_t heads,
                     std::int64_t d) {
  const std::int64_t size = heads * d;
  const Roots roots = factor(metric, heads, d);
  mirror(covariance, size);
  for (int side = 0; side < 2; ++side) {
    for (std::int64_t h = 0; h < heads; ++h)
      multiply_rows(power_of(roots, h, d, 0.5), h, d, covariance, size);
    transpose(covariance, size);
  }
  Latents latents;
  latents.eigenvalues = local_eigenvectors(covariance.data(), size);
  for (double& value : latents.eigenvalues) value = std::max(0.0, value);
  latents.lift = covariance;
  latents.projection = std::move(covariance);
  for (std::int64_t h = 0; h < heads; ++h) {
    multiply_rows(power_of(roots, h, d, 0.5), h, d, latents.projection, size);
    multiply_rows(power_of(roots, h, d, -0.5), h, d, latents.lift, size);
  }
  return latents;
}

}  // namespace headspan
