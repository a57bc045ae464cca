#include "stats/layers/overlap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/redistribution.h"
#include "stats/regression/head_moments.h"

namespace headspan {
namespace {

/// Returns singular values of W: the roots of the largest `count` eigenvalues of W^T W, descending.
std::vector<double> roots(const std::vector<double>& eigenvalues, std::int64_t count) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(std::sqrt(std::max(0.0, eigenvalues[to_size(i)])));
  return values;
}

/// Gains divided by a power of two, so that their squares and their products with weights do not overflow.
struct Gain {
  std::vector<double> factors;  // the largest magnitude is in [1, 2)
  int exponent = 0;
};

Gain normalised(std::vector<double> gain) {
  double largest = 0;
  for (const double factor : gain) largest = std::max(largest, std::abs(factor));
  const int exponent = largest > 0 ? std::ilogb(largest) : 0;
  for (double& factor : gain) factor = std::ldexp(factor, -exponent);
  return {std::move(gain), exponent};
}

std::vector<double> multiplied(std::vector<double> values, int exponent) {
  for (double& value : values) value = std::ldexp(value, exponent);
  return values;
}

/// Returns `count` singular values of W_i from its tile of W^T W: [d, d], which is lost.
std::vector<double> head_values(double* tile, const std::vector<double>& gain, std::int64_t count) {
  const Gain normal = normalised(gain);
  const auto d = static_cast<std::int64_t>(gain.size());
  for (std::int64_t j = 0; j < d; ++j)
    for (std::int64_t i = 0; i < d; ++i)
      tile[i + j * d] *= normal.factors[to_size(i)] * normal.factors[to_size(j)];
  return multiplied(roots(local_eigenvalues(tile, d, d), count), normal.exponent);
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
                                    std::int64_t d, const SymmetricEigenvalues& elsewhere) {
  const std::int64_t size = gram.columns().size, heads = size / d;
  std::vector<double> tiles = fetch_tiles(gram, d, diagonal_tiles({0, heads}));
  ProjectionSpectrum spectrum;
  for (std::int64_t h = 0; h < heads; ++h)
    spectrum.heads.push_back(head_values(
        &tiles[to_size(h * d * d)], {gain.begin() + h * d, gain.begin() + (h + 1) * d}, std::min(rows, d)));
  const Gain all = normalised(gain);
  Matrix scaled(gram.grid(), size, size, gram.rows().block);
  copy_submatrix(gram, 0, 0, scaled);
  scale_both_sides(scaled, all.factors);
  const bool is_whole = gram.grid().comm().size() == 1;
  const std::vector<double> values =
      elsewhere && is_whole ? elsewhere(scaled.data(), size) : eigenvalues(scaled);
  spectrum.joint = multiplied(roots(values, std::min(rows, size)), all.exponent);
  return spectrum;
}

ProjectionSpectrum spectrum_of_weights(const Matrix& w, const std::vector<double>& gain, std::int64_t d) {
  const std::int64_t rows = w.rows().size, size = w.columns().size;
  Matrix whole(w.grid(), rows, size, w.rows().block);
  copy_submatrix(w, 0, 0, whole);
  const Gain all = normalised(gain);
  scale_columns(whole, all.factors);
  ProjectionSpectrum spectrum;
  for (std::int64_t first = 0; first < size; first += d) {
    Matrix head(w.grid(), rows, d, w.rows().block);
    copy_submatrix(whole, 0, first, head);
    spectrum.heads.push_back(multiplied(singular_values(head), all.exponent));
  }
  spectrum.joint = multiplied(singular_values(whole), all.exponent);
  return spectrum;
}

OverlapRanks overlap_ranks(const ProjectionSpectrum& spectrum, std::int64_t rows, std::int64_t d,
                           std::optional<double> relative_tolerance) {
  const double largest = spectrum.joint.empty() ? 0 : spectrum.joint.front();
  const auto limit = [&](const std::vector<double>& values, std::int64_t columns) {
    if (relative_tolerance) return *relative_tolerance * largest;
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
