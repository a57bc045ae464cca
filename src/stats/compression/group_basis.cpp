#include "stats/compression/group_basis.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "stats/compression/latents.h"

namespace headspan {
namespace {

constexpr double kLargestDirection = 127;

std::vector<float> narrowed(const std::vector<double>& values) { return {values.begin(), values.end()}; }

}  // namespace

GroupBasis make_group_basis(std::vector<double> covariance, const std::vector<double>& metric,
                            std::int64_t heads, std::int64_t d, std::int64_t count) {
  const std::int64_t columns = heads * d;
  HS_ASSERT(count >= 1 && count <= columns);
  const MetricRoots roots = metric_roots(metric, heads, d);
  const Latents latents = make_latents(std::move(covariance), metric, heads, d);
  GroupBasis basis{{latents.variances.begin(), latents.variances.begin() + count},
                   narrowed(roots.roots),
                   narrowed(roots.inverses),
                   {},
                   {}};
  for (std::int64_t j = 0; j < count; ++j) {
    const auto first = latents.basis.begin() + j * columns;  // column-major
    double largest = 0;
    for (std::int64_t c = 0; c < columns; ++c) largest = std::max(largest, std::abs(first[c]));
    const double scale = largest / kLargestDirection;
    for (std::int64_t c = 0; c < columns; ++c)
      basis.directions.push_back(static_cast<std::int8_t>(std::lround(first[c] / scale)));
    basis.scale.push_back(static_cast<float>(scale));
  }
  return basis;
}

}  // namespace headspan
