// Elimination of heads against regressions by Gaussian elimination at every step, and the budget against all
// ways to spend it.
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "stats/compression/head_elimination.h"
#include "support/dense.h"

namespace headspan {
namespace {

constexpr std::int64_t kHeads = 5, kHeadSize = 2;

/// Sum of tr(M_t E_t) over the heads that are not kept.
double loss_of(const Dense& covariance, const std::vector<Dense>& metrics, const std::vector<bool>& kept) {
  std::vector<std::int64_t> sources;
  for (std::int64_t h = 0; h < kHeads; ++h)
    if (kept[static_cast<std::size_t>(h)]) sources.push_back(h);
  double loss = 0;
  for (std::int64_t t = 0; t < kHeads; ++t)
    if (!kept[static_cast<std::size_t>(t)])
      loss += (metrics[static_cast<std::size_t>(t)] * residual_of(covariance, sources, t, kHeadSize)).trace();
  return loss;
}

TEST(HeadElimination, drops_at_each_step_the_head_that_costs_least) {
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const Dense covariance = random_covariance(kHeads * kHeadSize, seed);
    const auto metrics = random_metrics(kHeads, kHeadSize, 50 * seed);

    const Elimination found = eliminate_heads(covariance.values(), joined(metrics), kHeads, kHeadSize);

    ASSERT_EQ(found.dropped.size(), 4U);
    ASSERT_EQ(found.loss.size(), 6U);
    EXPECT_TRUE(std::isinf(found.loss[0]));
    EXPECT_EQ(found.loss[5], 0);
    std::vector<bool> kept(kHeads, true);
    for (std::size_t step = 0; step < 4; ++step) {
      double smallest = std::numeric_limits<double>::infinity();
      std::int64_t best = -1;
      for (std::int64_t h = 0; h < kHeads; ++h) {
        if (!kept[static_cast<std::size_t>(h)]) continue;
        std::vector<bool> without = kept;
        without[static_cast<std::size_t>(h)] = false;
        const double loss = loss_of(covariance, metrics, without);
        if (loss < smallest) smallest = loss, best = h;
      }
      EXPECT_EQ(found.dropped[step], best) << "seed " << seed << ", step " << step;
      kept[static_cast<std::size_t>(best)] = false;
      EXPECT_NEAR(found.loss[4 - step] / smallest, 1, 1e-9);
    }
  }
}

TEST(HeadElimination, a_copied_head_costs_nothing) {
  Dense covariance = random_covariance(kHeads * kHeadSize, 4);
  for (std::int64_t k = 0; k < kHeads * kHeadSize; ++k)  // head 3 becomes head 1
    for (std::int64_t i = 0; i < kHeadSize; ++i)
      covariance(3 * kHeadSize + i, k) = covariance(kHeadSize + i, k);
  for (std::int64_t k = 0; k < kHeads * kHeadSize; ++k)
    for (std::int64_t i = 0; i < kHeadSize; ++i)
      covariance(k, 3 * kHeadSize + i) = covariance(k, kHeadSize + i);
  const std::vector<Dense> metrics(kHeads, random_covariance(kHeadSize, 60));

  const Elimination found = eliminate_heads(covariance.values(), joined(metrics), kHeads, kHeadSize);

  EXPECT_TRUE(found.dropped[0] == 1 || found.dropped[0] == 3);  // which of them is up to rounding
  EXPECT_LT(found.loss[4], 1e-9 * found.loss[3]);
}

// Sums in FP32 give two equal columns slightly different products, and the covariance an eigenvalue below 0.
TEST(HeadElimination, a_copied_head_costs_nothing_although_the_sums_are_rounded) {
  for (const double rounding : {1e-11, 1e-7, 3e-4}) {
    const std::vector<double> covariance = {1, 1 + rounding, 0, 1 + rounding, 1, 0, 0, 0, 3};
    const Elimination found = eliminate_heads(covariance, {1, 1, 1}, 3, 1);
    EXPECT_NE(found.dropped[0], 2);
    EXPECT_NEAR(found.loss[2], 0, 100 * rounding) << rounding;
    EXPECT_NEAR(found.loss[1], 2, 1e-5 + 100 * rounding) << rounding;  // epsilon over the ridge
  }
}

TEST(HeadElimination, budget_is_spent_as_well_as_any_other_way) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<std::vector<double>> losses{
      {inf, 9, 4, 1, 0}, {inf, 2, 1.5, 1.25, 0}, {inf, 30, 8, 7.5, 0}};
  for (std::int64_t budget = 3; budget <= 12; ++budget) {
    double smallest = inf;
    for (std::int64_t a = 1; a <= 4; ++a)
      for (std::int64_t b = 1; b <= 4; ++b)
        for (std::int64_t c = 1; c <= 4; ++c)
          if (a + b + c == budget)
            smallest = std::min(smallest, losses[0][static_cast<std::size_t>(a)] +
                                              losses[1][static_cast<std::size_t>(b)] +
                                              losses[2][static_cast<std::size_t>(c)]);

    const std::vector<std::int64_t> kept = allocate_heads(losses, budget);

    EXPECT_EQ(kept[0] + kept[1] + kept[2], budget);
    double loss = 0;
    for (std::size_t block = 0; block < 3; ++block)
      loss += losses[block][static_cast<std::size_t>(kept[block])];
    EXPECT_DOUBLE_EQ(loss, smallest) << budget << " heads";
  }
}

TEST(HeadElimination, of_equal_ways_the_earlier_block_keeps_fewer) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ(allocate_heads({{inf, 1, 0}, {inf, 1, 0}}, 3), (std::vector<std::int64_t>{1, 2}));
}

}  // namespace
}  // namespace headspan
