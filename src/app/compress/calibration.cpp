#include "app/compress/calibration.h"

#include <algorithm>

#include "base/checked.h"
#include "base/range.h"
#include "stats/regression/head_moments.h"

namespace headspan {
namespace {

/// Returns the covariance of every head of a Gram, [heads, d, d], on every rank. Collective over its grid.
std::vector<double> head_covariances(const HeadGram& gram, std::int64_t d) {
  const Comm& comm = gram.matrix.grid().comm();
  const auto heads = static_cast<std::int64_t>(gram.mean.size()) / d;
  const Range share = range_of(heads, comm.size(), comm.rank());
  std::vector<Tile> tiles;
  for (std::int64_t h = share.first; h < share.first + share.count; ++h) tiles.push_back({h, h});
  const TileViews views = view_tiles(gram.matrix, d, tiles);
  std::vector<double> covariances(to_size(heads * d * d));
  for (std::size_t k = 0; k < tiles.size(); ++k)
    for (std::int64_t j = 0; j < d; ++j)
      for (std::int64_t i = 0; i < d; ++i)
        covariances[to_size((tiles[k].row * d + j) * d + i)] =
            views.tiles[k].values[std::max(i, j) + std::min(i, j) * views.tiles[k].leading] /
            static_cast<double>(std::max<std::int64_t>(1, gram.tokens));
  comm.sum(covariances.data(), static_cast<std::int64_t>(covariances.size()));
  return covariances;
}

/// Returns the covariances of the values of all heads of all layers. Collective.
std::vector<double> value_covariances(const Calibration& calibration) {
  const std::int64_t d = calibration.layout.head_size;
  if (!calibration.grams.empty()) return head_covariances(calibration.grams.at(Stream::v).fit, d);
  std::vector<double> covariances;
  for (const HeadGram& gram : calibration.layer_grams.at(Stream::v)) {
    const std::vector<double> of_layer = head_covariances(gram, d);
    covariances.insert(covariances.end(), of_layer.begin(), of_layer.end());
  }
  return covariances;
}

}  // namespace

const Comm& Calibration::comm() const {
  const HeadGram& gram = grams.empty() ? layer_grams.at(Stream::v).front() : grams.at(Stream::v).fit;
  return gram.matrix.grid().comm();
}

std::vector<double> covariance_of(const HeadGram& gram, const std::vector<std::int64_t>& heads,
                                  std::int64_t d) {
  std::vector<double> covariance = dense_moments(gram.matrix, heads, d);
  const double weight = 1 / static_cast<double>(std::max<std::int64_t>(1, gram.tokens));
  for (double& value : covariance) value *= weight;
  return covariance;
}

std::map<Stream, std::vector<double>> head_metrics(const Calibration& calibration) {
  const AttentionMoments& moments = calibration.moments;
  const std::vector<double> covariances = value_covariances(calibration);
  const std::int64_t layer_size = moments.kv_heads * moments.head_size * moments.head_size;
  std::map<Stream, std::vector<double>> metrics;
  for (std::int64_t layer = 0; layer < moments.layers; ++layer) {
    const auto first = covariances.begin() + layer * layer_size;
    const std::vector<double> of_values = value_metric(moments, layer),
                              of_keys = key_metric(moments, layer, {first, first + layer_size});
    metrics[Stream::v].insert(metrics[Stream::v].end(), of_values.begin(), of_values.end());
    metrics[Stream::k].insert(metrics[Stream::k].end(), of_keys.begin(), of_keys.end());
  }
  return metrics;
}

}  // namespace headspan
