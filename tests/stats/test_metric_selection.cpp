// References in attention's metric against regressions by Gaussian elimination and against trying every head.
#include <limits>

#include <gtest/gtest.h>

#include "stats/compression/metric_selection.h"
#include "support/dense.h"

namespace headspan {
namespace {

constexpr std::int64_t kCandidates = 5, kHeadSize = 2, kTarget = kCandidates,
                       kColumns = (kCandidates + 1) * kHeadSize, kTokens = 400;

struct Sample {
  Dense moments;
  Dense metric;

  explicit Sample(std::uint64_t seed)
      : moments(random_covariance(kColumns, seed)), metric(random_covariance(kHeadSize, seed + 1000)) {}

  std::vector<double> variance() const {
    std::vector<double> result;
    for (std::int64_t i = 0; i < kColumns; ++i) result.push_back(moments(i, i));
    return result;
  }

  /// Returns the problem with -77 in the upper tiles, which must not be read.
  MetricProblem problem() const {
    Dense lower = moments;
    for (std::int64_t j = 0; j < kColumns; ++j)
      for (std::int64_t i = 0; i < j / kHeadSize * kHeadSize; ++i) lower(i, j) = -77;
    FitRules rules;
    rules.tokens = kTokens;
    return {rules, kHeadSize, lower.values(), variance(), metric.values()};
  }

  /// Returns tr(M E) per token.
  double loss(const std::vector<std::int64_t>& sources) const {
    return (metric * residual_of(moments, sources, kTarget, kHeadSize)).trace() / kTokens;
  }
};

TEST(MetricSelection, loss_of_one_candidate_is_its_residual_in_the_metric) {
  const Sample sample(1);
  const MetricProblem problem = sample.problem();

  ASSERT_EQ(problem.candidates(), kCandidates);
  for (std::int64_t candidate = 0; candidate < kCandidates; ++candidate)
    EXPECT_NEAR(problem.loss_of(candidate) / sample.loss({candidate}), 1, 1e-10);
}

TEST(MetricSelection, takes_at_each_step_what_leaves_least) {
  for (const std::uint64_t seed : {2U, 3U, 4U, 5U}) {
    const Sample sample(seed);
    const MetricProblem problem = sample.problem();
    std::vector<std::int64_t> allowed{0, 1, 3, 4};
    std::sort(allowed.begin(), allowed.end(),
              [&](std::int64_t a, std::int64_t b) { return problem.loss_of(a) < problem.loss_of(b); });
    std::vector<std::int64_t> expected;
    for (std::int64_t count = 1; count <= 3; ++count) {
      double smallest = std::numeric_limits<double>::infinity();
      std::int64_t best = -1;
      for (const std::int64_t candidate : allowed) {
        if (std::find(expected.begin(), expected.end(), candidate) != expected.end()) continue;
        std::vector<std::int64_t> with = expected;
        with.push_back(candidate);
        if (sample.loss(with) < smallest) smallest = sample.loss(with), best = candidate;
      }
      expected.push_back(best);

      const MetricChoice choice = problem.choose(allowed, count);

      EXPECT_EQ(choice.references, expected) << "seed " << seed;
      EXPECT_NEAR(choice.loss / smallest, 1, 1e-9) << "seed " << seed;
    }
  }
}

TEST(MetricSelection, counts_coordinates_of_the_target_by_what_they_lose) {
  Dense g(4 * kHeadSize, 4 * kHeadSize);  // three candidates that are not correlated, then the target
  for (std::int64_t i = 0; i < g.rows(); ++i) g(i, i) = 1;
  g(6, 6) = 1e6;
  g(6, 0) = 0.8 * 1e3;  // correlations of candidates 0 and 1 with the large coordinate,
  g(6, 2) = 0.3 * 1e3;
  g(7, 4) = 0.9;  // of candidate 2 with the small one
  FitRules rules;
  rules.tokens = kTokens;
  std::vector<double> variance(8, 1.0);
  variance[6] = 1e6;
  const MetricProblem problem(rules, kHeadSize, g.values(), variance, {1, 0, 0, 1});

  const MetricChoice choice = problem.choose({0, 1, 2}, 2);

  EXPECT_EQ(choice.references, (std::vector<std::int64_t>{0, 1}));
  EXPECT_NEAR(choice.loss * kTokens / (1e6 * (1 - 0.64 - 0.09) + 1), 1, 1e-9);
}

TEST(MetricSelection, a_copy_of_the_target_leaves_nothing) {
  Sample sample(6);
  for (std::int64_t i = 0; i < kHeadSize; ++i)
    for (std::int64_t k = 0; k < kColumns; ++k)
      sample.moments(kTarget * kHeadSize + i, k) = sample.moments(2 * kHeadSize + i, k);
  for (std::int64_t i = 0; i < kHeadSize; ++i)
    for (std::int64_t k = 0; k < kColumns; ++k)
      sample.moments(k, kTarget * kHeadSize + i) = sample.moments(k, 2 * kHeadSize + i);

  EXPECT_LT(sample.problem().loss_of(2), 1e-12 * sample.problem().loss_of(0));
}

TEST(MetricSelection, of_nothing_there_is_no_choice) {
  const MetricChoice choice = Sample(7).problem().choose({}, 3);

  EXPECT_TRUE(choice.references.empty());
  EXPECT_EQ(choice.loss, std::numeric_limits<double>::infinity());
}

}  // namespace
}  // namespace headspan
