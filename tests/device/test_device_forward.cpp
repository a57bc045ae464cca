// Forward selection on a device chooses what the host's does, which is what the results then say: on every
// grid.
#include <algorithm>
#include <optional>

#include "device/device_forward.h"
#include "dist/comm/agreement.h"
#include "stats/regression/selection.h"
#include "support/on_device.h"
#include "support/tables.h"

namespace headspan {
namespace {

SelectionTable forward(const RegressionData& data, const PairTable& pairs, std::int64_t pool,
                       const ForwardChoices& choices) {
  return gather(data.comm(), select(data, pairs, SelectionRule::forward, 4, pool, choices));
}

/// Returns how many targets of all ranks were left to the host.
std::int64_t expect_the_hosts_choices(const RegressionData& data, std::int64_t pool, at::Device device) {
  const PairTable pairs = all_pairs(data);
  const SelectionTable host = forward(data, pairs, pool, {});

  std::int64_t refused = 0;
  const SelectionTable table =
      forward(data, pairs, pool,
              [&](const RegressionData& d, const std::vector<ForwardProblem>& problems, std::int64_t count) {
                const auto choices = device_forward_choices(device)(d, problems, count);
                refused += std::count(choices.begin(), choices.end(), std::nullopt);
                return choices;
              });

  EXPECT_EQ(table.sources, host.sources);
  expect_near(table.r2, host.r2, 0, "r2");  // the fits are the host's
  EXPECT_EQ(table.status, host.status);
  data.comm().sum(&refused, 1);
  return refused;
}

using DeviceForward = OnDevice;
INSTANTIATE_TEST_SUITE_P(On, DeviceForward, testing::Values(at::kCPU, at::kCUDA), name_of_device);

// Pools of one, of all, and of none: the first of heads that are layers of their own.
TEST_P(DeviceForward, ChoosesAsTheHost) {
  for (const HeadLayout& layout : {make_layout(2, 5, 1), make_layout(9, 1, 3), make_layout(2, 4, 16)}) {
    const Activations fit = correlated(400, layout.columns(), 25, 0.3, 1, 2);
    on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
      const RegressionData data = make_data(grid, layout, fit, nullptr, {block});
      for (const std::int64_t pool : {1, 6, 16})
        EXPECT_EQ(expect_the_hosts_choices(data, pool, device_), layout.layer.back() == 8 ? 1 : 0);
    });
  }
}

TEST_P(DeviceForward, LeavesConstantCandidatesToTheHost) {
  const HeadLayout layout = make_layout(3, 2, 2);
  Activations fit = correlated(120, layout.columns(), 6, 0.5, 1, 2);
  make_constant(fit, 5, 17.5);  // of head 2, a candidate of all but layer 0
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, fit, nullptr, {block});
    EXPECT_EQ(expect_the_hosts_choices(data, 16, device_), 3);
  });
}

/// Head 2 is the sum of 0 and 1 but for a little, which is what is left of any of them beside the others. It
/// is also a good part of head 4.
Activations dependent(std::int64_t tokens) {
  Activations z = gaussian(tokens, 5, 6);
  const Activations little = gaussian(tokens, 1, 7);
  for (std::int64_t t = 0; t < tokens; ++t) {
    z.at(t, 2) = z.at(t, 0) + z.at(t, 1) + 3e-7 * little.at(t, 0);
    z.at(t, 4) = 2 * z.at(t, 0) + z.at(t, 1) + 0.5 * z.at(t, 3) + little.at(t, 0);
  }
  return z;
}

// The little has a share of 1e-13 in the heads, less than the tolerance for values that went through FP32.
TEST_P(DeviceForward, LeavesSmallPivotsToTheHost) {
  const HeadLayout layout = make_layout(1, 5, 1);
  const Activations fit = dependent(200);
  FitRules rules;
  rules.double_data = false;
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = regression_data(layout, rules, make_gram(grid, fit, {block}), std::nullopt);
    EXPECT_GT(expect_the_hosts_choices(data, 4, device_), 0);
  });
}

/// Heads 2 to 7 are multiples of one, which rounding alone tells apart.
Activations tied(std::int64_t tokens) {
  Activations z = correlated(tokens, 12 * 2, 30, 0.5, 1, 2);
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t h = 3; h < 8; ++h)
      for (std::int64_t j = 0; j < 2; ++j) z.at(t, 2 * h + j) = z.at(t, 4 + j) * static_cast<double>(h);
  return z;
}

TEST_P(DeviceForward, LeavesTiesToTheHost) {
  const HeadLayout layout = make_layout(1, 12, 2);
  const Activations fit = tied(120);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, fit, nullptr, {block});
    EXPECT_GT(expect_the_hosts_choices(data, 11, device_), 0);
  });
}

// 8 tokens suffice for 3 sources of 2 coordinates, not for 4.
TEST_P(DeviceForward, StopsWhereTokensAreTooFew) {
  const HeadLayout layout = make_layout(1, 6, 2);
  const Activations fit = gaussian(9, layout.columns(), 4);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    EXPECT_EQ(expect_the_hosts_choices(make_data(grid, layout, fit, nullptr, {block}), 5, device_), 0);
  });
}

TEST_P(DeviceForward, TellsAllRanksOfAFailureOnOne) {
  const HeadLayout layout = make_layout(1, 6, 2);
  const Activations fit = gaussian(90, layout.columns(), 4);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, fit, nullptr, {block});
    const PairTable pairs = all_pairs(data);
    const auto fails = [&](const RegressionData& d, const std::vector<ForwardProblem>& problems,
                           std::int64_t count) {
      for (const ForwardProblem& problem : problems)
        if (problem.heads.back() == 0) throw Error("no such device");
      return device_forward_choices(device_)(d, problems, count);
    };
    EXPECT_THROW(select(data, pairs, SelectionRule::forward, 2, 4, fails), AgreedError);
  });
}

TEST(DeviceForwardBytes, AreThoseOfABatchButNoMoreThanThereAreTargets) {
  EXPECT_EQ(device_forward_bytes(make_layout(2, 4, 16), 5), 8 * 4 * 96 * 96 * 8);
  EXPECT_EQ(device_forward_bytes(make_layout(32, 32, 128), 16), std::int64_t{1} << 31);
  EXPECT_EQ(device_forward_bytes(make_layout(1, 100, 128), 98), std::int64_t{4} * 99 * 128 * 99 * 128 * 8);
}

}  // namespace
}  // namespace headspan
