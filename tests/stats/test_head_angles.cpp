// Principal angles against heads that are built with known ones, on every grid.
#include <cmath>
#include <limits>

#include "stats/layers/head_angles.h"
#include "support/grids.h"
#include "support/tables.h"

namespace headspan {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kTokens = 40;

/// Three heads of two coordinates in layer 0, two in layer 1. Head 1 is turned from head 0 by the angles 0.3
/// and 1.1, head 2 shares one direction of head 0 and has it twice; layer 1 is head 0 and a head at right
/// angles. Coordinates are mixed within each head, which no angle sees.
Activations turned_heads() {
  const Activations basis = cosines(kTokens, 8);
  Activations directions{8, 10, std::vector<double>(80, 0.0)};
  const auto set = [&](std::int64_t column, std::int64_t direction, double value) {
    directions.at(direction, column) = value;
  };
  set(0, 0, 1), set(1, 1, 1);
  set(2, 0, std::cos(0.3)), set(2, 2, std::sin(0.3));
  set(3, 1, std::cos(1.1)), set(3, 3, std::sin(1.1));
  set(4, 1, 2), set(5, 1, -3);
  set(6, 0, 1), set(7, 1, 1);
  set(8, 6, 1), set(9, 7, 0.01);
  Activations mixing{10, 10, std::vector<double>(100, 0.0)};
  for (std::int64_t h = 0; h < 5; ++h) {
    const double row[2][2] = {{2, 1}, {-1, 3}};
    for (std::int64_t i = 0; i < 2; ++i)
      for (std::int64_t j = 0; j < 2; ++j) mixing.at(2 * h + i, 2 * h + j) = row[i][j];
  }
  return product(product(basis, directions), mixing);
}

TEST(HeadAngles, AreThoseTheHeadsWereBuiltWith) {
  HeadLayout layout = make_layout(1, 5, 2);
  layout.layer = {0, 0, 0, 1, 1};
  layout.head = {0, 1, 2, 0, 1};
  const double turned = std::pow(std::cos(0.3), 2) + std::pow(std::cos(1.1), 2);
  const double shared = std::pow(std::cos(1.1), 2);
  const std::vector<double> expected{2, turned, 1,    turned, 2, shared, 1,    shared, 1,
                                     2, 0,      kNaN, 0,      2, kNaN,   kNaN, kNaN,   kNaN};
  const Activations z = turned_heads();
  on_all_grids([&](const Grid& grid) {
    for (const std::int64_t block : blocks_to_try(layout)) {
      const RegressionData data = make_data(grid, layout, z, nullptr, {block});

      const HeadAngles angles = head_angles(data.fit.matrix, layout, data.sst, 1e-12);

      EXPECT_EQ(angles.layers, 2);
      EXPECT_EQ(angles.heads, 3);
      EXPECT_EQ(angles.rank, (std::vector<int>{2, 2, 1, 2, 2, 0}));
      expect_near(angles.cosines, expected, 1e-11, "cosines");
    }
  });
}

TEST(HeadAngles, OfIndependentNoiseAreTheNoiseFloor) {
  const HeadLayout layout = make_layout(1, 6, 5);
  const std::int64_t n = 400;
  const Activations z = gaussian(n, layout.columns(), 3);
  on_all_grids([&](const Grid& grid) {
    const RegressionData data = make_data(grid, layout, z, nullptr, {5});
    const HeadAngles angles = head_angles(data.fit.matrix, layout, data.sst, 1e-12);
    double mean = 0;
    for (std::size_t r = 0; r < 6; ++r)
      for (std::size_t t = 0; t < r; ++t) mean += angles.cosines[r * 6 + t] / 5 / 15;
    EXPECT_NEAR(mean, 5.0 / (n - 1), 2e-3);
  });
}

TEST(HeadAngles, AHeadWithoutVarianceHasNoDirections) {
  const HeadLayout layout = make_layout(1, 2, 2);
  Activations z = gaussian(20, 4, 1);
  make_constant(z, 0, 3);
  make_constant(z, 1, -1);
  on_all_grids([&](const Grid& grid) {
    const RegressionData data = make_data(grid, layout, z, nullptr, {2});
    const HeadAngles angles = head_angles(data.fit.matrix, layout, data.sst, 1e-12);
    EXPECT_EQ(angles.rank, (std::vector<int>{0, 2}));
    expect_near(angles.cosines, {0, 0, 0, 2}, 1e-12, "cosines");
  });
}

}  // namespace
}  // namespace headspan
