#include "stats/layers/overlap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/redistribution.h"
#include "dist/matrix/tile_exchange.h"

namespace headspan {
namespace {

/// The largest `count` eigenvalues of W^T W, descending, as singular values of W.
std::vector<double> roots(const std::vector<double>& eigenvalues, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(std::sqrt(std::max(0.0, eigenvalues[to_size(i)])));
  return values;
}

void scale_columns(Matrix& w, const std::vector<double>& gain) {
  for (std::int64_t j = 0; j < w.local_columns(); ++j) {
    const double factor = gain[to_size(w.columns().global(w.grid().column(), j))];
    std::transform(w.at(0, j), w.at(0, j) + w.local_rows(), w.at(0, j), [&](double x) { return factor * x; });
  }
}

std::int64_t rank_above(const std::vector<double>& values, double tolerance) {
  return std::count_if(values.begin(), values.end(), [&](double value) { return value > tolerance; });
}

}  // namespace

int bring_into_range(Matrix& w) {
  constexpr double kSmallest = 1e-100, kLargest = 1e100;
  double largest = 0;
  for (std::int64_t j = 0; j < w.local_columns(); ++j)
    for (std::int64_t i = 0; i < w.local_rows(); ++i) largest = std::max(largest, std::abs(*w.at(i, j)));
  largest = w.grid().comm().max(largest);
  if (largest == 0 || (largest >= kSmallest && largest <= kLargest)) return 0;
  const int exponent = std::ilogb(largest);
  for (std::int64_t j = 0; j < w.local_columns(); ++j)
    for (std::int64_t i = 0; i < w.local_rows(); ++i) *w.at(i, j) = std::ldexp(*w.at(i, j), -exponent);
  return exponent;
}

ProjectionSpectrum spectrum_of_gram(const Matrix& gram, const std::vector<double>& gain, std::int64_t rows,
                                    std::int64_t d) {
  const std::int64_t size = gram.columns().size, heads = size / d;
  Matrix scaled(gram.grid(), size, size, gram.rows().block);
  copy_part(gram, 0, 0, scaled);
  scale_both_sides(scaled, gain);
  std::vector<Tile> tiles;
  for (std::int64_t h = 0; h < heads; ++h) tiles.push_back({h, h});
  std::vector<double> own = fetch_tiles(scaled, d, tiles);
  ProjectionSpectrum spectrum;
  for (std::int64_t h = 0; h < heads; ++h)
    spectrum.heads.push_back(roots(local_eigenvalues(&own[to_size(h * d * d)], d, d), std::min(rows, d)));
  spectrum.joint = roots(eigenvalues(scaled), std::min(rows, size));
  return spectrum;
}

ProjectionSpectrum spectrum_of_weights(const Matrix& w, const std::vector<double>& gain, std::int64_t d) {
  const std::int64_t rows = w.rows().size, size = w.columns().size;
  Matrix whole(w.grid(), rows, size, w.rows().block);
  copy_part(w, 0, 0, whole);
  scale_columns(whole, gain);
  ProjectionSpectrum spectrum;
  for (std::int64_t first = 0; first < size; first += d) {
    Matrix head(w.grid(), rows, d, w.rows().block);
    copy_part(whole, 0, first, head);
    spectrum.heads.push_back(singular_values(head));
  }
  spectrum.joint = singular_values(whole);
  return spectrum;
}

bool is_paper_tolerance(const std::string& tolerance) { return tolerance == "paper"; }

OverlapRanks overlap_ranks(const ProjectionSpectrum& spectrum, std::int64_t rows, std::int64_t d,
                           const std::string& tolerance) {
  const bool paper = is_paper_tolerance(tolerance);
  const double largest = spectrum.joint.empty() ? 0 : spectrum.joint.front();
  const auto limit = [&](const std::vector<double>& values, std::int64_t columns) {
    if (!paper) return std::stod(tolerance) * largest;
    const double eps32 = static_cast<double>(std::numeric_limits<float>::epsilon());
    return static_cast<double>(std::max(rows, columns)) * eps32 * (values.empty() ? 0 : values.front());
  };
  OverlapRanks ranks;
  for (const auto& head : spectrum.heads) ranks.sum += rank_above(head, limit(head, d));
  const auto columns = static_cast<std::int64_t>(spectrum.heads.size()) * d;
  ranks.joint = rank_above(spectrum.joint, limit(spectrum.joint, columns));
  return ranks;
}

}  // namespace headspan
