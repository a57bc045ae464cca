#include "stats/layers/layer_inverse.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/local_algebra.h"
#include "dist/matrix/redistribution.h"
#include "dist/matrix/scalapack.h"

namespace headspan {
namespace {

/// Returns the lower triangle of the part of a symmetric matrix from `first` on, multiplied by `scale` on
/// both sides.
Matrix scaled_part(const Matrix& from, std::int64_t first, const std::vector<double>& scale) {
  const auto size = static_cast<std::int64_t>(scale.size());
  Matrix part(from.grid(), size, size, from.rows().block);
  copy_submatrix(from, first, first, part);
  scale_both_sides(part, scale);
  return part;
}

/// Returns the diagonal tiles sum_k A_tk B_kt of A B for symmetric B, which has A's distribution, so that
/// each rank multiplies its own elements: [heads] of [d, d], on all ranks. Collective.
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

/// Returns the diagonal tiles: [heads] of [d, d], on all ranks. Collective.
std::vector<double> fetch_diagonal(const Matrix& a, std::int64_t d) {
  return fetch_tiles(a, d, diagonal_tiles({0, a.rows().size / d}));
}

/// Returns diag(E R E) for symmetric [d, d].
std::vector<double> sandwich_diagonal(const double* e, const double* r, std::int64_t d) {
  const std::vector<double> er = gemm("N", "N", d, d, d, e, d, r, d);
  std::vector<double> diagonal(to_size(d), 0.0);
  for (std::int64_t k = 0; k < d; ++k)
    for (std::int64_t j = 0; j < d; ++j) diagonal[to_size(j)] += er[to_size(j + k * d)] * e[j + k * d];
  return diagonal;
}

/// Replaces A by its inverse, both triangles. Returns false if A is not safely of full rank. Collective.
bool invert_layer(Matrix& a, std::int64_t d) {
  if (!factor_cholesky(a) || !invert_cholesky(a)) return false;
  const std::vector<double> tiles = fetch_diagonal(a, d);
  double trace = 0;
  for (std::int64_t i = 0; i < a.rows().size; ++i) trace += tiles[to_size(i * d + i % d)];
  if (!(trace <= kMostInflation * static_cast<double>(a.rows().size))) return false;
  mirror_lower(a);
  return true;
}

/// Returns whether every coordinate of the heads first .. last - 1 varies.
bool all_vary(const RegressionData& data, std::int64_t first, std::int64_t last) {
  const std::int64_t d = data.layout.head_size;
  return std::all_of(data.sst.begin() + first * d, data.sst.begin() + last * d,
                     [](double sst) { return sst > 0; });
}

/// Fetches the tiles of a layer and inverts it on this rank. With no heads, only sends tiles to other ranks.
/// Collective.
std::optional<LayerResiduals> invert_on_rank(const RegressionData& data, const LayerTargets& layer,
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

/// Completes the residuals by layer on all ranks, from those that each rank has computed. Collective.
void share_residuals(const RegressionData& data, const std::vector<LayerTargets>& layers,
                     std::vector<std::optional<LayerResiduals>>& residuals) {
  for (std::size_t k = 0; k < layers.size(); ++k) {
    if (data.comm().max(residuals[k] ? 1 : 0) == 0) continue;
    const std::int64_t size = (layers[k].last - layers[k].first) * data.layout.head_size,
                       size_heldout = data.heldout ? size : 0;
    if (!residuals[k])
      residuals[k] =
          LayerResiduals{std::vector<double>(to_size(size)), std::vector<double>(to_size(size_heldout))};
    data.comm().sum(residuals[k]->errors.data(), size);
    data.comm().sum(residuals[k]->errors_heldout.data(), size_heldout);
  }
}

}  // namespace

std::optional<LayerResiduals> layer_residuals(const RegressionData& data, std::int64_t first,
                                              std::int64_t last) {
  const std::int64_t d = data.layout.head_size, begin = first * d, size = (last - first) * d;
  if (!all_vary(data, first, last)) return {};
  std::vector<double> scale;
  for (std::int64_t j = begin; j < begin + size; ++j) scale.push_back(1 / std::sqrt(data.sst[to_size(j)]));
  Matrix p = scaled_part(data.fit.matrix, begin, scale);
  if (!invert_layer(p, d)) return {};
  std::vector<double> covariance = fetch_diagonal(p, d), moments;  // by head: [d, d]
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
    if (!invert_positive_definite(tile, d)) return {};
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

std::vector<std::optional<LayerResiduals>> layer_residuals_by_rank(const RegressionData& data,
                                                                   const std::vector<LayerTargets>& layers,
                                                                   const LayerInverse& invert) {
  std::vector<std::size_t> varying;
  for (std::size_t k = 0; k < layers.size(); ++k)
    if (all_vary(data, layers[k].first, layers[k].last)) varying.push_back(k);
  std::vector<std::optional<LayerResiduals>> residuals(layers.size());
  const auto ranks = to_size(data.comm().size()), rank = to_size(data.comm().rank());
  for (std::size_t first = 0; first < varying.size(); first += ranks) {
    const bool has_layer = first + rank < varying.size();
    auto inverted = invert_on_rank(data, has_layer ? layers[varying[first + rank]] : LayerTargets{}, invert);
    if (has_layer) residuals[varying[first + rank]] = std::move(inverted);
  }
  share_residuals(data, layers, residuals);
  return residuals;
}

}  // namespace headspan
