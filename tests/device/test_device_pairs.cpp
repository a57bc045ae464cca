// All pairs with their products on a device against the host's, on every grid.
#include <cmath>

#include "device/device_pairs.h"
#include "stats/regression/pairwise.h"
#include "support/on_device.h"
#include "support/tables.h"

namespace headspan {
namespace {

// Both sum the same products in another order: d of them in X and in X S, with factors of condition 1e2 here.
constexpr double kRounding = 1e-12;

/// Values of R² below -1 (held out) are held relative to their size.
std::vector<double> compressed(std::vector<double> r2) {
  for (double& value : r2)
    if (value < -1) value = -1 - std::log(-value);
  return r2;
}

void expect_the_hosts_pairs(const RegressionData& data, at::Device device) {
  const PairTable host = gather(data.comm(), all_pairs(data));

  const PairTable table = gather(data.comm(), all_pairs(data, device_pair_sums(device)));

  expect_near(table.r2, host.r2, kRounding, "r2");
  expect_near(table.r2_weighted, host.r2_weighted, kRounding, "r2_weighted");
  expect_near(compressed(table.r2_heldout), compressed(host.r2_heldout), kRounding, "r2_heldout");
  expect_near(table.pivot, host.pivot, 0, "pivot");
  EXPECT_EQ(table.status, host.status);
  EXPECT_EQ(table.rank, host.rank);
}

using DevicePairSums = OnDevice;
INSTANTIATE_TEST_SUITE_P(On, DevicePairSums, testing::Values(at::kCPU, at::kCUDA), name_of_device);

TEST_P(DevicePairSums, AreTheHosts) {
  for (const HeadLayout& layout :
       {make_layout(2, 3, 1), make_layout(2, 5, 3), make_layout(1, 7, 16), make_layout(1, 1, 3)}) {
    const Activations fit = correlated(300, layout.columns(), 9, 0.3, 1, 2);
    const Activations heldout = correlated(100, layout.columns(), 9, 0.3, 1, 3);
    on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
      expect_the_hosts_pairs(make_data(grid, layout, fit, &heldout, {block}), device_);
      expect_the_hosts_pairs(make_data(grid, layout, fit, nullptr, {block}), device_);
    });
  }
}

/// Head 1 copies 0, 2 has a constant coordinate, 3 is constant, 5 has two equal coordinates.
Activations degenerate(std::int64_t tokens, std::uint64_t seed) {
  Activations z = gaussian(tokens, 7 * 3, seed);
  copy_head(z, 3, 0, 1);
  make_constant(z, 7, 0.1);
  for (std::int64_t j = 9; j < 12; ++j) make_constant(z, j, -3e5);
  for (std::int64_t t = 0; t < tokens; ++t) z.at(t, 16) = z.at(t, 15);
  return z;
}

TEST_P(DevicePairSums, AreTheHostsForDeficientAndConstantHeads) {
  const HeadLayout layout = make_layout(1, 7, 3);
  const Activations fit = degenerate(100, 13), heldout = degenerate(40, 15);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    expect_the_hosts_pairs(make_data(grid, layout, fit, &heldout, {block}), device_);
  });
}

TEST_P(DevicePairSums, AreTheHostsWithFewTokens) {
  const HeadLayout layout = make_layout(1, 4, 3);
  const Activations heldout = gaussian(9, layout.columns(), 5);
  for (const std::int64_t tokens : {5, 4}) {  // enough for 3 regressors, too few
    const Activations fit = gaussian(tokens, layout.columns(), 4);
    on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
      expect_the_hosts_pairs(make_data(grid, layout, fit, &heldout, {block}), device_);
    });
  }
}

// Two runs of a study have the same bits.
TEST_P(DevicePairSums, HaveTheSameBitsWhenRepeated) {
  const HeadLayout layout = make_layout(1, 7, 16);
  const Activations fit = correlated(300, layout.columns(), 9, 0.3, 1, 2);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, fit, &fit, {block});
    const PairTable first = all_pairs(data, device_pair_sums(device_));
    const PairTable second = all_pairs(data, device_pair_sums(device_));
    expect_near(first.r2, second.r2, 0, "r2");
    expect_near(first.r2_heldout, second.r2_heldout, 0, "r2_heldout");
  });
}

}  // namespace
}  // namespace headspan
