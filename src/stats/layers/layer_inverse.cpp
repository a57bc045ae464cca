#include "stats/layers/layer_inverse.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/redistribution.h"
#include "dist/matrix/scalapack.h"

namespace headspan {
namespace {

/// The part of a symmetric matrix from `first` on, both sides multiplied by `scale`; lower triangle.
Matrix scaled_part(const Matrix& from, std::int64_t first, const std::vector<double>& scale) {
  const auto size = static_cast<std::int64_t>(scale.size());
  const Grid& grid = from.grid();
  Matrix part(grid, size, size, from.rows().block);
  copy_submatrix(from, first, first, part);
  scale_both_sides(part, scale);
  return part;
}

/// sum_k A_tk B_kt for every tile t on the diagonal of A B, B symmetric: both are stored alike, so that each
/// rank adds the products of its own elements. [heads] of [d, d], on all ranks.
std::vector<double> diagonal_of_product(const Matrix& a, const Matrix& b, std::int64_t d) {
  const Grid& grid = a.grid();
  const std::int64_t heads = a.rows().size / d;
  std::vector<double> tiles(to_size(heads * d * d), 0.0);
  const int size = to_int(d), columns = to_int(a.local_columns()), ld = to_int(a.leading());
  const double one = 1, zero = 0;
  for (std::int64_t i = 0; columns > 0 && i < a.local_rows(); i += d) {
    double* tile = &tiles[to_size(a.rows().global(grid.row(), i) * d)];
    dgemm_("N", "T", &size, &size, &columns, &one, a.at(i, 0), &ld, b.at(i, 0), &ld, &zero, tile, &size);
  }
  grid.comm().sum(tiles.data(), static_cast<std::int64_t>(tiles.size()));
  return tiles;
}

/// The tiles on the diagonal: [heads] of [d, d], on all ranks.
std::vector<double> diagonal_tiles(const Matrix& a, std::int64_t d) {
  std::vector<Tile> tiles;
  for (std::int64_t h = 0; h < a.rows().size / d; ++h) tiles.push_back({h, h});
  return fetch_tiles(a, d, tiles);
}

/// The inverse of a small positive definite matrix, both triangles. False when it is none.
bool invert_tile(double* tile, std::int64_t d) {
  const int n = to_int(d);
  int info = 0;
  dpotrf_("L", &n, tile, &n, &info);
  if (info == 0) dpotri_("L", &n, tile, &n, &info);
  for (std::int64_t j = 0; j < d; ++j)
    for (std::int64_t i = j + 1; i < d; ++i) tile[j + i * d] = tile[i + j * d];
  return info == 0;
}

/// diag(E R E) for symmetric [d, d].
std::vector<double> sandwich_diagonal(const double* e, const double* r, std::int64_t d) {
  std::vector<double> er(to_size(d * d)), diagonal(to_size(d), 0.0);
  const int n = to_int(d);
  const double one = 1, zero = 0;
  dgemm_("N", "N", &n, &n, &n, &one, e, &n, r, &n, &zero, er.data(), &n);
  for (std::int64_t k = 0; k < d; ++k)
    for (std::int64_t j = 0; j < d; ++j) diagonal[to_size(j)] += er[to_size(j + k * d)] * e[j + k * d];
  return diagonal;
}

/// P = A^-1 with both triangles. False where A is not safely of full rank.
bool invert_layer(Matrix& a, std::int64_t d) {
  if (!factor_cholesky(a) || !invert_cholesky(a)) return false;
  const std::vector<double> tiles = diagonal_tiles(a, d);
  double trace = 0;
  for (std::int64_t i = 0; i < a.rows().size; ++i) trace += tiles[to_size(i * d + i % d)];
  if (!(trace <= kMostInflation * static_cast<double>(a.rows().size))) return false;
  mirror_lower(a);
  return true;
}

/// Whether every coordinate of the heads first .. last - 1 varies.
bool varies(const RegressionData& data, std::int64_t first, std::int64_t last) {
  const std::int64_t d = data.layout.head_size;
  return std::all_of(data.sst.begin() + first * d, data.sst.begin() + last * d,
                     [](double sst) { return sst > 0; });
}

/// The inverse of one layer, which may have no heads: then its rank only helps others to theirs. Collective.
std::optional<LayerResiduals> invert_alone(const RegressionData& data, const LayerTargets& layer,
                                           const LayerInverse& invert) {
  const std::vector<Tile> tiles = tiles_among(layer.heads());
  const TileViews fit = view_tiles(data.fit.matrix, data.layout.head_size, tiles);
  TileViews heldout;
  if (data.heldout) heldout = view_tiles(data.heldout->matrix, data.layout.head_size, tiles);
  std::optional<LayerResiduals> residuals;
  agree(data.comm(), [&] {
    if (tiles.empty()) return;
    const std::int64_t d = data.layout.head_size;
    residuals = invert({layer.heads(), d, fit.tiles.data(), data.heldout ? heldout.tiles.data() : nullptr,
                        &data.sst[to_size(layer.first * d)]});
  });
  return residuals;
}

/// The residuals of layers on all ranks, from those that each rank has, by layer. Collective.
std::vector<std::optional<LayerResiduals>> share_residuals(
    const RegressionData& data, const std::vector<LayerTargets>& layers,
    const std::vector<std::optional<LayerResiduals>>& mine) {
  std::vector<int> known;
  std::vector<double> errors(data.sst.size(), 0.0), errors_heldout(data.sst_heldout.size(), 0.0);
  const auto column = [&](std::size_t k) { return layers[k].first * data.layout.head_size; };
  for (std::size_t k = 0; k < layers.size(); ++k) {
    known.push_back(mine[k] ? 1 : 0);
    if (!mine[k]) continue;
    std::copy(mine[k]->errors.begin(), mine[k]->errors.end(), errors.begin() + column(k));
    std::copy(mine[k]->errors_heldout.begin(), mine[k]->errors_heldout.end(),
              errors_heldout.begin() + column(k));
  }
  data.comm().sum(known.data(), static_cast<std::int64_t>(known.size()));
  data.comm().sum(errors.data(), static_cast<std::int64_t>(errors.size()));
  data.comm().sum(errors_heldout.data(), static_cast<std::int64_t>(errors_heldout.size()));
  const auto part = [&](const std::vector<double>& all, std::size_t k) {
    if (all.empty()) return all;
    const auto first = all.begin() + column(k);
    return std::vector<double>(first, first + (layers[k].last - layers[k].first) * data.layout.head_size);
  };
  std::vector<std::optional<LayerResiduals>> residuals(layers.size());
  for (std::size_t k = 0; k < layers.size(); ++k)
    if (known[k] != 0) residuals[k] = LayerResiduals{part(errors, k), part(errors_heldout, k)};
  return residuals;
}

}  // namespace

std::optional<LayerResiduals> layer_residuals(const RegressionData& data, std::int64_t first,
                                              std::int64_t last) {
  const std::int64_t d = data.layout.head_size, begin = first * d, size = (last - first) * d;
  if (!varies(data, first, last)) return {};
  std::vector<double> scale;
  for (std::int64_t j = begin; j < begin + size; ++j) scale.push_back(1 / std::sqrt(data.sst[to_size(j)]));
  Matrix p = scaled_part(data.fit.matrix, begin, scale);
  if (!invert_layer(p, d)) return {};
  std::vector<double> covariance = diagonal_tiles(p, d), moments;  // by head [d, d]
  if (data.heldout) {
    Matrix m = scaled_part(data.heldout->matrix, begin, scale);
    mirror_lower(m);
    Matrix pm(m.grid(), size, size, m.rows().block);
    multiply(p, m, pm);
    moments = diagonal_of_product(pm, p, d);
  }
  LayerResiduals residuals;
  for (std::int64_t t = 0; t < last - first; ++t) {
    double* tile = &covariance[to_size(t * d * d)];
    if (!invert_tile(tile, d)) return {};
    const std::vector<double> heldout =
        data.heldout ? sandwich_diagonal(tile, &moments[to_size(t * d * d)], d) : std::vector<double>();
    for (std::int64_t j = 0; j < d; ++j) {
      const double sst = data.sst[to_size(begin + t * d + j)];
      residuals.errors.push_back(tile[j + j * d] * sst);
      if (data.heldout) residuals.errors_heldout.push_back(heldout[to_size(j)] * sst);
    }
  }
  return residuals;
}

std::vector<std::optional<LayerResiduals>> dealt_layer_residuals(const RegressionData& data,
                                                                 const std::vector<LayerTargets>& layers,
                                                                 const LayerInverse& invert) {
  std::vector<std::size_t> safe;
  for (std::size_t k = 0; k < layers.size(); ++k)
    if (varies(data, layers[k].first, layers[k].last)) safe.push_back(k);
  std::vector<std::optional<LayerResiduals>> mine(layers.size());
  const auto ranks = to_size(data.comm().size()), rank = to_size(data.comm().rank());
  for (std::size_t first = 0; first < safe.size(); first += ranks) {
    const bool has_one = first + rank < safe.size();
    auto residuals = invert_alone(data, has_one ? layers[safe[first + rank]] : LayerTargets{}, invert);
    if (has_one) mine[safe[first + rank]] = std::move(residuals);
  }
  return share_residuals(data, layers, mine);
}

}  // namespace headspan
