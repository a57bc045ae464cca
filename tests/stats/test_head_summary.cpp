// Summaries against closed forms: heads made of orthogonal directions of known length.
#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "base/range.h"
#include "stats/layers/head_summary.h"
#include "support/grids.h"
#include "support/tables.h"

namespace headspan {
namespace {

constexpr std::int64_t kTokens = 100, kHeadSize = 2, kLayers = 2, kHeads = 3;

/// Mean, lengths of the two directions, and the angle between them and the coordinates, of a head.
struct HeadShape {
  double mean, long_side, short_side, angle;
};
constexpr HeadShape kShapes[] = {{3, 2, 1, 0.3}, {-1e4, 5, 0.01, 1}, {0, 1, 1, 0.7},
                                 {1, 4, 0, 0.5}, {8, 1, 0.5, 0},     {2, 3, 2, 2}};

Activations shaped_heads() {
  const Activations basis = cosines(kTokens, 12);
  Activations z{kTokens, 12, std::vector<double>(static_cast<std::size_t>(kTokens * 12))};
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t h = 0; h < 6; ++h) {
      const HeadShape& shape = kShapes[h];
      const double a = shape.long_side * basis.at(t, 2 * h), b = shape.short_side * basis.at(t, 2 * h + 1);
      z.at(t, 2 * h) = shape.mean + std::cos(shape.angle) * a - std::sin(shape.angle) * b;
      z.at(t, 2 * h + 1) = std::sin(shape.angle) * a + std::cos(shape.angle) * b;
    }
  return z;
}

TEST(HeadSummary, HasTheMomentsAndRanksOfKnownShapes) {
  const HeadLayout layout = make_layout(kLayers, kHeads, kHeadSize);
  const Activations z = shaped_heads();
  const double unit = kTokens / 2.0 / (kTokens - 1.0);  // variance of a direction of length 1
  std::vector<double> mean, variance, spectrum, rank, layer_rank;
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    double trace = 0, squares = 0;
    for (std::int64_t h = layer * kHeads; h < (layer + 1) * kHeads; ++h) {
      const HeadShape& shape = kShapes[h];
      const double a = shape.long_side * shape.long_side * unit,
                   b = shape.short_side * shape.short_side * unit;
      const double c = std::cos(shape.angle) * std::cos(shape.angle);
      mean.insert(mean.end(), {shape.mean, 0});
      variance.insert(variance.end(), {c * a + (1 - c) * b, (1 - c) * a + c * b});
      spectrum.insert(spectrum.end(), {a, b});
      rank.push_back((a + b) * (a + b) / (a * a + b * b));
      trace += a + b;
      squares += a * a + b * b;
    }
    layer_rank.push_back(trace * trace / squares);
  }

  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const HeadSummary summary = summarise_heads(make_data(grid, layout, z, nullptr, {block}));

    const Comm& comm = grid.comm();
    expect_near(gather_slabs(comm, summary.mean), mean, 1e-11, "mean");
    expect_near(gather_slabs(comm, summary.variance), variance, 1e-12, "variance");
    expect_near(gather_slabs(comm, summary.spectrum), spectrum, 1e-12, "spectrum");
    expect_near(gather_slabs(comm, summary.effective_rank), rank, 1e-12, "effective_rank");
    expect_near(summary.effective_rank_layer, layer_rank, 1e-12, "effective_rank_layer");
    EXPECT_EQ(summary.targets.first, range_of(6, comm.size(), comm.rank()).first);
  });
}

TEST(HeadSummary, CountsWhatHeadsOfALayerShare) {
  const HeadLayout layout =
      make_layout(1, 2, 2);  // head 1 copies head 0: twice the trace, four times the squares
  Activations z = shaped_heads();
  copy_head(z, 2, 0, 1);
  Activations two{kTokens, 4, {}};
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t j = 0; j < 4; ++j) two.values.push_back(z.at(t, j));
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const HeadSummary summary = summarise_heads(make_data(grid, layout, two, nullptr, {block}));

    EXPECT_NEAR(summary.effective_rank_layer.at(0), 25.0 / 17, 1e-12);  // of lengths² 4 and 1
  });
}

TEST(HeadSummary, IsNoNumberWithoutVariance) {
  const HeadLayout layout = make_layout(1, 2, 2);
  Activations z = gaussian(30, 4, 1);
  make_constant(z, 0, 0.1);
  make_constant(z, 1, 1e9);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const Comm& comm = grid.comm();
    const HeadSummary summary = summarise_heads(make_data(grid, layout, z, nullptr, {block}));
    const HeadSummary of_one = summarise_heads(make_data(grid, layout, gaussian(1, 4, 2), nullptr, {block}));

    const auto rank = gather_slabs(comm, summary.effective_rank);
    EXPECT_TRUE(std::isnan(rank[0]));
    EXPECT_GT(rank[1], 1);
    const auto variance = gather_slabs(comm, of_one.variance), spectrum = gather_slabs(comm, of_one.spectrum);
    for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(std::isnan(variance[i]) && std::isnan(spectrum[i]));
    EXPECT_TRUE(std::isnan(of_one.effective_rank_layer.at(0)));
  });
}

}  // namespace
}  // namespace headspan
