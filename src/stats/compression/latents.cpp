#include "stats/compression/latents.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/local_algebra.h"

namespace headspan {
namespace {

constexpr double kFloor = 1e-9;  // relative to the metric's largest eigenvalue

/// The eigenvectors of every head's metric and its eigenvalues, which are raised to a floor.
struct Roots {
  std::vector<double> vectors;  // [heads, d, d]
  std::vector<double> values;   // [heads, d]
  bool nonzero = false;         // whether a metric is not 0
};

Roots factor(const std::vector<double>& metric, std::int64_t heads, std::int64_t d) {
  Roots roots{metric, {}, false};
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::vector<double> values = local_eigenvectors(&roots.vectors[to_size(h * d * d)], d);
    roots.values.insert(roots.values.end(), values.begin(), values.end());
  }
  const double largest = *std::max_element(roots.values.begin(), roots.values.end());
  roots.nonzero = largest > 0;
  for (double& value : roots.values) value = roots.nonzero ? std::max(value, kFloor * largest) : 1;
  return roots;
}

/// Returns V diag(value^power) V^T of head h: [d, d].
std::vector<double> power_of(const Roots& roots, std::int64_t h, std::int64_t d, double power) {
  const double* v = &roots.vectors[to_size(h * d * d)];
  std::vector<double> scaled(v, v + d * d);
  for (std::int64_t j = 0; j < d; ++j)
    for (std::int64_t i = 0; i < d; ++i)
      scaled[to_size(i + j * d)] *= std::pow(roots.values[to_size(h * d + j)], power);
  return gemm("N", "T", d, d, d, scaled.data(), d, v, d);
}

/// Multiplies the rows of head h of a: [D, D] by root: [d, d] from the left.
void multiply_rows(const std::vector<double>& root, std::int64_t h, std::int64_t d, std::vector<double>& a,
                   std::int64_t size) {
  double* rows = &a[to_size(h * d)];
  const std::vector<double> product = gemm("N", "N", d, size, d, root.data(), d, rows, size);
  for (std::int64_t j = 0; j < size; ++j) std::copy_n(&product[to_size(j * d)], d, rows + j * size);
}

void transpose(std::vector<double>& a, std::int64_t size) {
  for (std::int64_t j = 0; j < size; ++j)
    for (std::int64_t i = 0; i < j; ++i) std::swap(a[to_size(i + j * size)], a[to_size(j + i * size)]);
}

}  // namespace

MetricRoots metric_roots(const std::vector<double>& metric, std::int64_t heads, std::int64_t d) {
  const Roots factors = factor(metric, heads, d);
  MetricRoots roots;
  for (std::int64_t h = 0; h < heads; ++h) {
    const std::vector<double> root = power_of(factors, h, d, 0.5), inverse = power_of(factors, h, d, -0.5);
    roots.roots.insert(roots.roots.end(), root.begin(), root.end());
    roots.inverses.insert(roots.inverses.end(), inverse.begin(), inverse.end());
  }
  return roots;
}

Latents make_latents(std::vector<double> covariance, const std::vector<double>& metric, std::int64_t heads,
                     std::int64_t d) {
  const std::int64_t size = heads * d;
  const Roots roots = factor(metric, heads, d);
  mirror_lower(covariance.data(), size, size);
  for (int side = 0; side < 2; ++side) {
    for (std::int64_t h = 0; h < heads; ++h)
      multiply_rows(power_of(roots, h, d, 0.5), h, d, covariance, size);
    transpose(covariance, size);
  }
  Latents latents;
  latents.variances = local_eigenvectors(covariance.data(), size);
  for (double& value : latents.variances) value = std::max(0.0, value);
  latents.eigenvalues = roots.nonzero ? latents.variances : std::vector<double>(to_size(size), 0.0);
  latents.reconstruction = covariance;
  latents.projection = std::move(covariance);
  for (std::int64_t h = 0; h < heads; ++h) {
    multiply_rows(power_of(roots, h, d, 0.5), h, d, latents.projection, size);
    multiply_rows(power_of(roots, h, d, -0.5), h, d, latents.reconstruction, size);
  }
  return latents;
}

}  // namespace headspan
