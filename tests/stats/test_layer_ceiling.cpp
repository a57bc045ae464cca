// Layer ceilings, by inversion and target by target, against least squares on the raw activations, on every
// grid.
#include <cmath>
#include <limits>

#include "stats/layers/layer_ceiling.h"
#include "stats/layers/layer_inverse.h"
#include "support/grids.h"
#include "support/reference_ols.h"
#include "support/tables.h"

namespace headspan {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::int64_t kInvertAll = 1, kInvertNone = 1 << 30;

struct Expected {
  std::vector<double> r2, adjusted, heldout;
};

/// Each head from all others of its layer.
Expected by_least_squares(const HeadLayout& layout, const Activations& fit, const Activations* heldout) {
  Expected expected;
  for (std::int64_t t = 0; t < layout.heads(); ++t) {
    std::vector<std::int64_t> others;
    for (std::int64_t h = 0; h < layout.heads(); ++h)
      if (h != t && layout.layer[static_cast<std::size_t>(h)] == layout.layer[static_cast<std::size_t>(t)])
        others.push_back(h);
    const OlsScore score = others.empty() ? OlsScore{kNaN, kNaN, kNaN}
                                          : reference_ols(fit, heldout, layout.head_size, others, t);
    const auto n = static_cast<double>(fit.tokens),
               p = static_cast<double>(others.size()) * static_cast<double>(layout.head_size);
    expected.r2.push_back(score.r2);
    expected.adjusted.push_back(1 - (1 - score.r2) * (n - 1) / (n - p - 1));
    expected.heldout.push_back(score.r2_heldout);
  }
  return expected;
}

void expect_ceiling(const RegressionData& data, std::int64_t distribute_from, const Expected& expected,
                    const std::vector<std::uint8_t>& status, double tolerance) {
  const LayerCeiling ceiling = layer_ceiling(data, distribute_from);

  const Comm& comm = data.comm();
  expect_near(gather_slabs(comm, ceiling.r2), expected.r2, tolerance, "r2");
  expect_near(gather_slabs(comm, ceiling.r2_adjusted), expected.adjusted, 10 * tolerance, "adjusted");
  expect_near(gather_slabs(comm, ceiling.r2_heldout), expected.heldout, 10 * tolerance, "held out");
  EXPECT_EQ(gather_slabs(comm, ceiling.status), status);
}

TEST(LayerCeiling, AgreesWithLeastSquaresBothWays) {
  const HeadLayout layouts[] = {make_layout(2, 3, 4), make_layout(3, 4, 1), make_layout(1, 5, 3)};
  for (const HeadLayout& layout : layouts) {
    const Activations fit = correlated(90, layout.columns(), 7, 0.3, 1, 2);
    const Activations heldout = correlated(40, layout.columns(), 7, 0.3, 1, 3);
    const Expected expected = by_least_squares(layout, fit, &heldout);
    const std::vector<std::uint8_t> status(static_cast<std::size_t>(layout.heads()), 0);
    on_all_grids([&](const Grid& grid) {
      for (const std::int64_t block : blocks_to_try(layout)) {
        const RegressionData data = make_data(grid, layout, fit, &heldout, {block});
        EXPECT_TRUE(layer_residuals(data, 0, layout.heads() / (layout.layer.back() + 1)).has_value());
        expect_ceiling(data, kInvertAll, expected, status, 1e-11);
        expect_ceiling(data, kInvertNone, expected, status, 1e-11);
      }
    });
  }
}

TEST(LayerCeiling, WithoutAHeldOutPart) {
  const HeadLayout layout = make_layout(2, 3, 2);
  const Activations fit = correlated(50, layout.columns(), 4, 0.5, 1, 2);
  const Expected expected = by_least_squares(layout, fit, nullptr);
  on_all_grids([&](const Grid& grid) {
    const RegressionData data = make_data(grid, layout, fit, nullptr, {2});
    expect_ceiling(data, kInvertAll, expected, std::vector<std::uint8_t>(6, 0), 1e-11);
    expect_ceiling(data, kInvertNone, expected, std::vector<std::uint8_t>(6, 0), 1e-11);
  });
}

TEST(LayerCeiling, DependentHeadsAreNotInverted) {
  const HeadLayout layout = make_layout(2, 4, 2);
  Activations fit = correlated(60, layout.columns(), 5, 0.5, 1, 2);
  Activations heldout = correlated(30, layout.columns(), 5, 0.5, 1, 3);
  for (Activations* part : {&fit, &heldout}) {
    copy_head(*part, 2, 0, 2);          // heads 0 and 2 are equal
    make_constant(*part, 4 * 2, 17.5);  // a coordinate of head 4, the first of layer 1
  }
  const Expected expected = by_least_squares(layout, fit, &heldout);
  const std::vector<std::uint8_t> status{0,         kDeficient, 0,          kDeficient,
                                         kConstant, kDeficient, kDeficient, kDeficient};
  on_all_grids([&](const Grid& grid) {
    const RegressionData data = make_data(grid, layout, fit, &heldout, {2});
    EXPECT_FALSE(layer_residuals(data, 0, 4).has_value());
    EXPECT_FALSE(layer_residuals(data, 4, 8).has_value());
    expect_ceiling(data, kInvertAll, expected, status, 1e-9);
  });
}

TEST(LayerCeiling, NearlyDependentHeadsAreNotInverted) {
  const HeadLayout layout = make_layout(1, 4, 2);
  Activations fit = correlated(60, layout.columns(), 5, 0.5, 1, 2);
  const Activations noise = gaussian(60, 2, 9);
  copy_head(fit, 2, 0, 2);
  for (std::int64_t t = 0; t < 60; ++t)
    for (std::int64_t j = 0; j < 2; ++j) fit.at(t, 4 + j) += 1e-4 * noise.at(t, j);
  const Expected expected = by_least_squares(layout, fit, nullptr);
  on_all_grids([&](const Grid& grid) {
    const RegressionData data = make_data(grid, layout, fit, nullptr, {2});
    EXPECT_FALSE(layer_residuals(data, 0, 4).has_value());
    expect_ceiling(data, kInvertAll, expected, std::vector<std::uint8_t>(4, 0), 1e-9);
  });
}

TEST(LayerCeiling, SaysWhyThereIsNone) {
  HeadLayout layout = make_layout(2, 3, 2);
  layout.layer = {0, 0, 0, 1, 1, 2};  // layer 2 has one head
  layout.head = {0, 1, 2, 0, 1, 0};
  const Activations fit =
      correlated(5, layout.columns(), 3, 1, 1, 2);  // 4 regressors are too many, 2 are not
  Expected expected = by_least_squares(layout, fit, nullptr);
  for (std::size_t t = 0; t < 3; ++t) expected.r2[t] = expected.adjusted[t] = kNaN;
  expected.heldout.assign(6, kNaN);
  const std::vector<std::uint8_t> status{kTooFewTokens, kTooFewTokens, kTooFewTokens, 0, 0, kNotComputed};
  on_all_grids([&](const Grid& grid) {
    const RegressionData data = make_data(grid, layout, fit, nullptr, {2});
    expect_ceiling(data, kInvertAll, expected, status, 1e-11);
    expect_ceiling(data, kInvertNone, expected, status, 1e-11);
  });
}

/// Independent heads: what p regressors of noise explain in-sample is p / (n - 1), adjusted 0.
TEST(LayerCeiling, OfPureNoiseIsTheNoiseFloor) {
  const HeadLayout layout = make_layout(1, 8, 4);
  const std::int64_t n = 2000, p = 7 * 4;
  const Activations fit = gaussian(n, layout.columns(), 5);
  on_all_grids([&](const Grid& grid) {
    const LayerCeiling ceiling = layer_ceiling(make_data(grid, layout, fit, nullptr, {8}), kInvertAll);

    double r2 = 0, adjusted = 0;
    for (const double value : gather_slabs(grid.comm(), ceiling.r2)) r2 += value / 8;
    for (const double value : gather_slabs(grid.comm(), ceiling.r2_adjusted)) adjusted += value / 8;
    EXPECT_NEAR(r2, static_cast<double>(p) / (n - 1), 2e-3);
    EXPECT_NEAR(adjusted, 0, 2e-3);
  });
}

}  // namespace
}  // namespace headspan
