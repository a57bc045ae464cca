// Latents against their defining equations, by three loops, and against the closed form of diagonal matrices.
#include <algorithm>

#include <gtest/gtest.h>

#include "stats/compression/latents.h"
#include "support/dense.h"

namespace headspan {
namespace {

constexpr std::int64_t kHeads = 3, kHeadSize = 2, kColumns = kHeads * kHeadSize;

Dense square(const std::vector<double>& values) { return {kColumns, kColumns, values}; }

/// The metrics of all heads on the diagonal.
Dense block_diagonal(const std::vector<Dense>& metrics) {
  Dense result(kColumns, kColumns);
  for (std::int64_t j = 0; j < kColumns; ++j)
    for (std::int64_t i = 0; i < kColumns; ++i)
      if (i / kHeadSize == j / kHeadSize)
        result(i, j) = metrics[static_cast<std::size_t>(i / kHeadSize)](i % kHeadSize, j % kHeadSize);
  return result;
}

Dense lower_triangle(Dense a) {
  for (std::int64_t j = 0; j < a.columns(); ++j)
    for (std::int64_t i = 0; i < j; ++i) a(i, j) = -77;  // never to be read
  return a;
}

TEST(Latents, are_uncorrelated_with_the_eigenvalues_as_variances) {
  const Dense covariance = random_covariance(kColumns, 1);
  const auto metrics = random_metrics(kHeads, kHeadSize, 10);

  const Latents latents =
      make_latents(lower_triangle(covariance).values(), joined(metrics), kHeads, kHeadSize);

  const Dense projection = square(latents.projection);
  const Dense found = projection.transposed() * covariance * projection;
  for (std::int64_t j = 0; j < kColumns; ++j)
    for (std::int64_t i = 0; i < kColumns; ++i)
      EXPECT_NEAR(found(i, j), i == j ? latents.eigenvalues[static_cast<std::size_t>(i)] : 0,
                  1e-11 * latents.eigenvalues[0]);
  EXPECT_EQ(latents.variances, latents.eigenvalues);
  EXPECT_TRUE(std::is_sorted(latents.eigenvalues.rbegin(), latents.eigenvalues.rend()));
}

TEST(Latents, all_of_them_give_the_columns_back) {
  const Latents latents = make_latents(random_covariance(kColumns, 2).values(),
                                       joined(random_metrics(kHeads, kHeadSize, 20)), kHeads, kHeadSize);

  const Dense identity = square(latents.reconstruction) * square(latents.projection).transposed();
  for (std::int64_t j = 0; j < kColumns; ++j)
    for (std::int64_t i = 0; i < kColumns; ++i) EXPECT_NEAR(identity(i, j), i == j ? 1 : 0, 1e-11);
}

TEST(Latents, a_dropped_one_costs_its_eigenvalue_in_the_metric) {
  const Dense covariance = random_covariance(kColumns, 3);
  const auto metrics = random_metrics(kHeads, kHeadSize, 30);
  const Dense metric = block_diagonal(metrics);

  const Latents latents = make_latents(covariance.values(), joined(metrics), kHeads, kHeadSize);

  for (std::int64_t dropped = 0; dropped < kColumns; ++dropped) {
    Dense map =
        square(latents.projection) * square(latents.reconstruction).transposed();  // x -> what is had of it
    for (std::int64_t j = 0; j < kColumns; ++j)
      for (std::int64_t i = 0; i < kColumns; ++i)
        map(i, j) -= square(latents.projection)(i, dropped) * square(latents.reconstruction)(j, dropped);
    for (std::int64_t i = 0; i < kColumns; ++i) map(i, i) -= 1;  // x -> its error
    EXPECT_NEAR((metric * map.transposed() * covariance * map).trace(),
                latents.eigenvalues[static_cast<std::size_t>(dropped)], 1e-10 * latents.eigenvalues[0]);
  }
}

TEST(Latents, of_diagonal_matrices_are_the_columns_by_variance_times_weight) {
  const std::vector<double> variances{4, 1, 9, 0.5, 0.01, 3}, weights{1, 2, 0.1, 8, 5, 1};
  Dense covariance(kColumns, kColumns);
  std::vector<Dense> metrics(kHeads, Dense(kHeadSize, kHeadSize));
  std::vector<double> expected;
  for (std::int64_t i = 0; i < kColumns; ++i) {
    const auto at = static_cast<std::size_t>(i);
    covariance(i, i) = variances[at];
    metrics[at / kHeadSize](i % kHeadSize, i % kHeadSize) = weights[at];
    expected.push_back(variances[at] * weights[at]);
  }
  std::sort(expected.rbegin(), expected.rend());

  const Latents latents = make_latents(covariance.values(), joined(metrics), kHeads, kHeadSize);

  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(latents.eigenvalues[i], expected[i], 1e-13);
}

TEST(Latents, what_the_metric_does_not_see_is_a_billionth_of_the_most) {
  std::vector<Dense> metrics(kHeads, Dense(kHeadSize, kHeadSize));
  metrics[1](0, 0) = 4;  // nothing else is seen
  Dense covariance(kColumns, kColumns);
  for (std::int64_t i = 0; i < kColumns; ++i) covariance(i, i) = 1;

  const Latents latents = make_latents(covariance.values(), joined(metrics), kHeads, kHeadSize);

  EXPECT_NEAR(latents.eigenvalues[0], 4, 1e-12);
  for (std::size_t i = 1; i < latents.eigenvalues.size(); ++i)
    EXPECT_NEAR(latents.eigenvalues[i], 4e-9, 1e-15);
}

/// A layer that nothing depends on: the values of its heads are 0, or its queries.
TEST(Latents, what_no_metric_sees_costs_nothing_and_comes_back) {
  Dense covariance(kColumns, kColumns);
  const std::vector<double> variances{4, 1, 9, 0.5, 0, 3};
  for (std::int64_t i = 0; i < kColumns; ++i) covariance(i, i) = variances[static_cast<std::size_t>(i)];

  const Latents latents =
      make_latents(covariance.values(), std::vector<double>(kColumns * kHeadSize, 0.0), kHeads, kHeadSize);

  EXPECT_EQ(latents.eigenvalues, std::vector<double>(kColumns, 0.0));
  const std::vector<double> descending{9, 4, 3, 1, 0.5, 0};
  for (std::size_t i = 0; i < descending.size(); ++i) EXPECT_NEAR(latents.variances[i], descending[i], 1e-13);
  const Dense identity = square(latents.reconstruction) * square(latents.projection).transposed();
  for (std::int64_t j = 0; j < kColumns; ++j)
    for (std::int64_t i = 0; i < kColumns; ++i) EXPECT_NEAR(identity(i, j), i == j ? 1 : 0, 1e-13);
}

}  // namespace
}  // namespace headspan
