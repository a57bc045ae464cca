// Layer ceilings with layers inverted on devices, one rank each, against those of the host, on every grid.
#include "device/device_layers.h"
#include "dist/comm/agreement.h"
#include "stats/layers/layer_ceiling.h"
#include "support/on_device.h"
#include "support/tables.h"

namespace headspan {
namespace {

constexpr std::int64_t kInvertAll = 1;

/// Layers of 3, 1, 4, 2 and 5 heads.
HeadLayout uneven_layout(std::int64_t d) {
  HeadLayout layout = make_layout(1, 15, d);
  layout.layer = {0, 0, 0, 1, 2, 2, 2, 2, 3, 3, 4, 4, 4, 4, 4};
  layout.head = {0, 1, 2, 0, 0, 1, 2, 3, 0, 1, 0, 1, 2, 3, 4};
  return layout;
}

void expect_same(const RegressionData& data, const LayerCeiling& ceiling, const LayerCeiling& expected,
                 double tolerance) {
  const Comm& comm = data.comm();
  expect_near(gather_slabs(comm, ceiling.r2), gather_slabs(comm, expected.r2), tolerance, "r2");
  expect_near(gather_slabs(comm, ceiling.r2_adjusted), gather_slabs(comm, expected.r2_adjusted),
              10 * tolerance, "adjusted");
  expect_near(gather_slabs(comm, ceiling.r2_heldout), gather_slabs(comm, expected.r2_heldout), 10 * tolerance,
              "held out");
  EXPECT_EQ(gather_slabs(comm, ceiling.status), gather_slabs(comm, expected.status));
}

using DeviceLayers = OnDevice;
INSTANTIATE_TEST_SUITE_P(On, DeviceLayers, testing::Values(at::kCPU, at::kCUDA), name_of_device);

// Both invert: as many operations in another order, on layers whose mean inflation is below 1e2.
TEST_P(DeviceLayers, AreInvertedAsOnTheHost) {
  for (const std::int64_t d : {1, 3, 16}) {
    const HeadLayout layout = uneven_layout(d);
    const Activations fit = correlated(400, layout.columns(), 9, 0.5, 1, 2);
    const Activations heldout = correlated(150, layout.columns(), 9, 0.5, 1, 3);
    on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
      for (const Activations* part : {&heldout, static_cast<const Activations*>(nullptr)}) {
        const RegressionData data = make_data(grid, layout, fit, part, {block});
        for (const LayerTargets& layer : whole_layers(layout))
          EXPECT_TRUE(layer_residuals_by_rank(data, {layer}, device_layer_inverse(device_))[0].has_value());
        expect_same(data, layer_ceiling(data, kInvertAll, device_layer_inverse(device_)),
                    layer_ceiling(data, kInvertAll), 1e-12);
      }
    });
  }
}

/// Layer 0: two equal heads; 2: nearly equal ones, of inflation about 1e8 and positive definite; 3: a
/// constant coordinate.
Activations degenerate(std::int64_t tokens, std::uint64_t seed) {
  Activations z = correlated(tokens, 15 * 2, 7, 0.5, 1, seed);
  copy_head(z, 2, 0, 2);
  copy_head(z, 2, 4, 6);
  const Activations noise = gaussian(tokens, 2, seed + 9);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t j = 0; j < 2; ++j) z.at(t, 12 + j) += 1e-4 * noise.at(t, j);
  make_constant(z, 17, 17.5);
  return z;
}

TEST_P(DeviceLayers, AreLeftToTheHostWhereTheyAreNotSafelyOfFullRank) {
  const HeadLayout layout = uneven_layout(2);
  const Activations fit = degenerate(90, 2), heldout = degenerate(40, 3);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, fit, &heldout, {block});
    const auto residuals = layer_residuals_by_rank(data, whole_layers(layout), device_layer_inverse(device_));
    std::vector<bool> inverted;
    for (const auto& layer : residuals) inverted.push_back(layer.has_value());
    EXPECT_EQ(inverted, (std::vector<bool>{false, true, false, false, true}));
    expect_same(data, layer_ceiling(data, kInvertAll, device_layer_inverse(device_)),
                layer_ceiling(data, kInvertAll), 1e-12);
  });
}

// 6 tokens suffice for 4 regressors, not for 6.
TEST_P(DeviceLayers, OfTooFewTokensAreNotAnswered) {
  const HeadLayout layout = uneven_layout(2);
  const Activations fit = gaussian(7, layout.columns(), 4), heldout = gaussian(9, layout.columns(), 5);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, fit, &heldout, {block});
    expect_same(data, layer_ceiling(data, kInvertAll, device_layer_inverse(device_)),
                layer_ceiling(data, kInvertAll), 1e-9);
  });
}

TEST_P(DeviceLayers, TellAllRanksOfAFailureOnOne) {
  const HeadLayout layout = uneven_layout(2);
  const Activations fit = gaussian(90, layout.columns(), 4);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, fit, nullptr, {block});
    const auto fails = [&](const LayerTiles& layer) {
      if (layer.heads.front() == 0) throw Error("no such device");
      return device_layer_inverse(device_)(layer);
    };
    EXPECT_THROW(layer_ceiling(data, kInvertAll, fails), AgreedError);
  });
}

TEST(DeviceLayerBytes, AreThoseOfTheLargest) {
  EXPECT_EQ(device_layer_bytes(uneven_layout(16)), 8 * 8 * 80 * 80);
}

}  // namespace
}  // namespace headspan
