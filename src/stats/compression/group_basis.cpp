#include "stats/compression/group_basis.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "stats/compression/latents.h"

namespace headspan {
namespace {

constexpr double kLargestDirection = 127;

/// Returns column j of U: that of S U, multiplied by S^-1 head by head.
std::vector<double> direction(const Latents& latents, const MetricRoots& roots, std::int64_t heads,
                              std::int64_t d, std::int64_t j) {
  std::vector<double> column(to_size(heads * d));
  for (std::int64_t row = 0; row < heads * d; ++row) {
    const double* const from = &latents.projection[to_size(j * heads * d + row / d * d)];
    for (std::int64_t i = 0; i < d; ++i)
      column[to_size(row)] += roots.inverses[to_size(row * d + i)] * from[i];
  }
  return column;
}

std::vector<float> narrowed(const std::vector<double>& values) { return {values.begin(), values.end()}; }

}  // namespace

GroupBasis make_group_basis(std::vector<double> covariance, const std::vector<double>& metric,
                            std::int64_t heads, std::int64_t d, std::int64_t count) {
  HS_ASSERT(count >= 1 && count <= heads * d);
  const MetricRoots roots = metric_roots(metric, heads, d);
  const Latents latents = make_latents(std::move(covariance), metric, heads, d);
  GroupBasis basis{{latents.variances.begin(), latents.variances.begin() + count},
                   narrowed(roots.roots),
                   narrowed(roots.inverses),
                   {},
                   {}};
  for (std::int64_t j = 0; j < count; ++j) {
    const std::vector<double> column = direction(latents, roots, heads, d, j);
    double largest = 0;
    for (const double value : column) largest = std::max(largest, std::abs(value));
    const double scale = largest / kLargestDirection;
    for (const double value : column)
      basis.directions.push_back(static_cast<std::int8_t>(std::lround(value / scale)));
    basis.scale.push_back(static_cast<float>(scale));
  }
  return basis;
}

}  // namespace headspan
