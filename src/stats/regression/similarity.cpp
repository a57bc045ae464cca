#include "stats/regression/similarity.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/checked.h"
#include "dist/matrix/local_algebra.h"
#include "dist/threads.h"

namespace headspan {
namespace {

const double* tile_at(const Matrix& matrix, std::int64_t row, std::int64_t column, std::int64_t d) {
  return matrix.at(matrix.rows().local(row * d), matrix.columns().local(column * d));
}

double sum_of_squares(const std::vector<double>& x) {
  return std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
}

/// Returns the number of the layer of each head, counted from 0.
std::vector<std::int64_t> layer_numbers(const HeadLayout& layout) {
  std::vector<std::int64_t> numbers;
  for (std::size_t h = 0; h < layout.layer.size(); ++h)
    numbers.push_back(h == 0 ? 0 : numbers.back() + (layout.layer[h] != layout.layer[h - 1] ? 1 : 0));
  return numbers;
}

/// Returns the mean cosine of the principal angles between two random subspaces that have these shares of a
/// space. Wachter's density of their squares x is sqrt((x - low) (high - x)) / (2 pi small x (1 - x)); if the
/// shares exceed 1 together, the subspaces have a part in common.
double mean_cosine(double small, double large) {
  if (large >= 1) return 1;
  constexpr double kPi = 3.14159265358979323846;
  const double centre = small + large - 2 * small * large,
               radius = 2 * std::sqrt(small * large * (1 - small) * (1 - large));
  const double common = std::max(0.0, (small + large - 1) / small);
  constexpr int kSteps = 4096;  // of the angle whose cosine runs from low to high: the integrand is periodic
  double sum = 0;
  for (int k = 0; k < kSteps; ++k) {
    const double angle = kPi * (k + 0.5) / kSteps, x = centre + radius * std::cos(angle);
    sum += std::pow(radius * std::sin(angle), 2) / (std::sqrt(x) * (1 - x));
  }
  return common + sum / (2 * small * kSteps);
}

/// What the measures of a pair are made of, on the ranks of both heads.
struct PairSimilarity {
  std::int64_t target, source;
  double square, nuclear, canonical;
};

}  // namespace

double random_similarity(SimilarityMeasure measure, double share, double other) {
  const double small = std::min({share, other, 1.0}), large = std::min(std::max(share, other), 1.0);
  switch (measure) {
    case SimilarityMeasure::cka:
      return std::sqrt(small * large);
    case SimilarityMeasure::cca:
      return large;
    case SimilarityMeasure::procrustes:
      return 1 - std::sqrt(small / large) * mean_cosine(small, large);
  }
  return {};
}

bool Similarity::has(SimilarityMeasure measure) const {
  return std::find(measures_.begin(), measures_.end(), measure) != measures_.end();
}

Similarity::TileSums Similarity::compare(const RegressionData& data, const PairSources& sources,
                                         TileSums tile) const {
  const std::int64_t d = data.layout.head_size;
  const Matrix& gram = data.fit.matrix;
  const double* values = tile_at(gram, tile.row, tile.column, d);
  for (std::int64_t j = 0; j < d; ++j)
    for (std::int64_t i = 0; i < d; ++i)
      tile.square += values[j * gram.leading() + i] * values[j * gram.leading() + i];
  if (tile.row == tile.column) return tile;
  if (has(SimilarityMeasure::procrustes)) tile.nuclear = sum_of_singular_values(d, d, values, gram.leading());
  if (!has(SimilarityMeasure::cca)) return tile;
  const std::vector<double>& u = sources.at(tile.column).whitener;
  const std::vector<double> cu = gemm("N", "N", d, d, d, values, gram.leading(), u.data(), d);
  tile.canonical =
      sum_of_squares(gemm("T", "N", d, d, d, sources.at(tile.row).whitener.data(), d, cu.data(), d));
  return tile;
}

PairSums Similarity::beside(PairSums sums) {
  return [this, sums = std::move(sums)](const RegressionData& data, const PairSources& sources,
                                        const PairSink& sink) {
    sums(data, sources, sink);
    const Matrix& gram = data.fit.matrix;
    const std::int64_t d = data.layout.head_size;
    tiles_.clear();
    for (std::int64_t i = 0; i < gram.local_rows(); i += d)
      for (std::int64_t j = 0; j < gram.local_columns(); j += d) {
        const std::int64_t row = gram.rows().global(gram.grid().row(), i) / d,
                           column = gram.columns().global(gram.grid().column(), j) / d;
        if (row == column ||
            (row > column && (data.layout.predicts(column, row) || data.layout.predicts(row, column))))
          tiles_.push_back({row, column, 0, 0, 0});
      }
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t k = 0; k < tiles_.size(); ++k) tiles_[k] = compare(data, sources, tiles_[k]);
  };
}

/// Returns the CKA of whole layers: [layers, layers].
std::vector<double> Similarity::layer_cka(const RegressionData& data) const {
  const std::vector<std::int64_t> layer = layer_numbers(data.layout);
  const std::int64_t layers = layer.back() + 1;
  std::vector<double> squares(to_size(layers * layers)), cka(squares.size());
  for (const TileSums& tile : tiles_) {
    const std::int64_t l = layer[to_size(tile.row)], m = layer[to_size(tile.column)];
    squares[to_size(l * layers + m)] += tile.square;
    if (tile.row != tile.column) squares[to_size(m * layers + l)] += tile.square;
  }
  data.comm().sum(squares.data(), layers * layers);
  const auto norm = [&](std::int64_t l) { return std::sqrt(squares[to_size(l * layers + l)]); };
  for (std::int64_t l = 0; l < layers; ++l)
    for (std::int64_t m = 0; m < layers; ++m)
      cka[to_size(l * layers + m)] = squares[to_size(l * layers + m)] / (norm(l) * norm(m));
  return cka;
}

SimilarityTable Similarity::finish(const RegressionData& data, const std::vector<int>& rank) const {
  const std::int64_t heads = data.layout.heads(), d = data.layout.head_size;
  const Comm& comm = data.comm();
  const HeadLayout& layout = data.layout;
  SimilarityTable table{layout.targets_of(comm.size(), comm.rank()), {}, {}};
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const SimilarityMeasure measure : measures_)
    table.values[measure].assign(to_size(table.targets.count * heads), nan);
  std::vector<double> norms(to_size(heads)), traces(to_size(heads));
  std::vector<std::vector<PairSimilarity>> send(to_size(comm.size()));
  for (const TileSums& tile : tiles_) {
    if (tile.row == tile.column) {
      norms[to_size(tile.row)] = std::sqrt(tile.square);
      continue;
    }
    for (const auto& [target, source] : {std::pair(tile.row, tile.column), {tile.column, tile.row}})
      if (layout.predicts(source, target))
        send[to_size(layout.owner_of_target(comm.size(), target))].push_back(
            {target, source, tile.square, tile.nuclear, tile.canonical});
  }
  comm.sum(norms.data(), heads);
  for (std::int64_t h = 0; h < heads; ++h)
    traces[to_size(h)] = std::accumulate(&data.sst[to_size(h * d)], &data.sst[to_size(h * d)] + d, 0.0);
  for (const auto& part : comm.exchange(send))
    for (const PairSimilarity& pair : part) {
      const std::size_t at = to_size((pair.target - table.targets.first) * heads + pair.source),
                        t = to_size(pair.target), s = to_size(pair.source);
      const auto set = [&](SimilarityMeasure measure, double value) {
        if (has(measure)) table.values[measure][at] = value;
      };
      set(SimilarityMeasure::cka, pair.square / (norms[t] * norms[s]));
      set(SimilarityMeasure::cca, pair.canonical / std::min(rank[t], rank[s]));
      set(SimilarityMeasure::procrustes, 1 - pair.nuclear / (std::sqrt(traces[t]) * std::sqrt(traces[s])));
    }
  if (has(SimilarityMeasure::cka) && layout.second == 0) table.cka_layer = layer_cka(data);
  return table;
}

}  // namespace headspan
