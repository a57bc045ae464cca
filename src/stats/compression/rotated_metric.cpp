#include "stats/compression/rotated_metric.h"

#include <cmath>

#include "base/checked.h"

namespace headspan {
namespace {

/// Sets the d numbers of x, `step` apart, to those of R^T x: rotated back.
void rotate_back(const double* cos, const double* sin, std::int64_t pairs, std::int64_t step, double* x) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    double &low = x[i * step], &high = x[(i + pairs) * step];
    const double a = low, b = high;
    low = a * cos[i] + b * sin[i];
    high = b * cos[i] - a * sin[i];
  }
}

}  // namespace

std::vector<double> rotated_metric(const std::vector<double>& metrics, std::int64_t d,
                                   const RotationAngles& rotation) {
  if (rotation.angles.empty()) return metrics;
  const auto distances = static_cast<std::int64_t>(rotation.angles.size()) / rotation.pairs;
  HS_ASSERT(2 * rotation.pairs <= d);
  std::vector<double> cos, sin;
  for (const double angle : rotation.angles) {
    cos.push_back(std::cos(angle));
    sin.push_back(std::sin(angle));
  }
  std::vector<double> sums(metrics.size());
  const auto heads = static_cast<std::int64_t>(metrics.size()) / (d * d);
#pragma omp parallel for schedule(dynamic)
  for (std::int64_t head = 0; head < heads; ++head) {
    double* const sum = &sums[to_size(head * d * d)];
    for (std::int64_t distance = 0; distance < distances; ++distance) {
      const double *c = &cos[to_size(distance * rotation.pairs)],
                   *s = &sin[to_size(distance * rotation.pairs)];
      const auto first = metrics.begin() + head * d * d;
      std::vector<double> rotated(first, first + d * d);
      for (std::int64_t j = 0; j < d; ++j) rotate_back(c, s, rotation.pairs, 1, &rotated[to_size(j * d)]);
      for (std::int64_t i = 0; i < d; ++i) rotate_back(c, s, rotation.pairs, d, &rotated[to_size(i)]);
      for (std::int64_t k = 0; k < d * d; ++k) sum[k] += rotated[to_size(k)] / static_cast<double>(distances);
    }
  }
  return sums;
}

}  // namespace headspan
