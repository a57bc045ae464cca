// The metric of attention against its definition, summed token by token, under grouped queries, on one rank
// and on several that see different tokens.
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "stats/compression/attention_metric.h"
#include "support/dense.h"

namespace headspan {
namespace {

constexpr std::int64_t kLayers = 2, kHeads = 4, kKvHeads = 2, kHeadSize = 3, kTokens = 11;

template <class T>
std::vector<T> draw(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = static_cast<T>(normal(engine));
  return values;
}

std::vector<std::int64_t> tokens_of(int rank, int ranks) {
  std::vector<std::int64_t> rows;  // token 4 does not count
  for (std::int64_t token = 0; token < kTokens; ++token)
    if (token != 4 && token % ranks == rank) rows.push_back(token);
  return rows;
}

template <class T>
class AttentionSumsOf : public testing::Test {};
using Values = testing::Types<float, double>;
TYPED_TEST_SUITE(AttentionSumsOf, Values);

TYPED_TEST(AttentionSumsOf, are_means_over_the_tokens_that_count) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const std::vector<std::int64_t> rows = tokens_of(world.rank(), world.size());
  AttentionSums sums(kLayers, kHeads, kKvHeads, kHeadSize);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    const auto seed = static_cast<std::uint64_t>(10 * layer);
    // heads 0 and 1, then 2 and 3, as tensor-parallel ranks would bring them
    sums.add_queries(layer, 0, 2, draw<TypeParam>(kTokens * 2 * kHeadSize, seed).data(), rows);
    sums.add_queries(layer, 2, 2, draw<TypeParam>(kTokens * 2 * kHeadSize, seed + 1).data(), rows);
    std::vector<double> squares = draw<double>(kTokens, seed + 2);
    for (double& square : squares) square = 1 + square * square;
    sums.add_mean_squares(layer, squares, rows);
  }

  const AttentionMoments moments = sums.finish(world, kTokens - 1);

  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    double inverse = 0;
    const auto squares = draw<double>(kTokens, static_cast<std::uint64_t>(10 * layer + 2));
    for (std::int64_t t = 0; t < kTokens; ++t)
      if (t != 4)
        inverse += 1 / (1 + squares[static_cast<std::size_t>(t)] * squares[static_cast<std::size_t>(t)]);
    EXPECT_NEAR(moments.scale[static_cast<std::size_t>(layer)], inverse / (kTokens - 1), 1e-14);
    for (std::int64_t head = 0; head < kHeads; ++head) {
      const auto q =
          draw<TypeParam>(kTokens * 2 * kHeadSize, static_cast<std::uint64_t>(10 * layer + head / 2));
      for (std::int64_t i = 0; i < kHeadSize; ++i)
        for (std::int64_t j = 0; j < kHeadSize; ++j) {
          double sum = 0;
          for (std::int64_t t = 0; t < kTokens; ++t) {
            const std::int64_t row = (t * 2 + head % 2) * kHeadSize;
            if (t != 4)
              sum +=
                  double{q[static_cast<std::size_t>(row + i)]} * double{q[static_cast<std::size_t>(row + j)]};
          }
          const std::int64_t at = ((layer * kHeads + head) * kHeadSize + i) * kHeadSize + j;
          EXPECT_NEAR(moments.query[static_cast<std::size_t>(at)], sum / (kTokens - 1) / kHeadSize, 1e-14);
        }
    }
  }
}

TEST(AttentionMetric, is_not_a_number_where_a_token_that_counts_overflowed) {
  AttentionSums sums(2, 1, 1, 1);
  const double infinity = std::numeric_limits<double>::infinity();

  sums.add_mean_squares(0, {2, infinity, 4}, {0, 1, 2});
  sums.add_mean_squares(1, {2, infinity, 4}, {0, 2});

  EXPECT_TRUE(std::isnan(sums.sums().scale[0]));  // 1 / infinity is 0, as if the token were not there
  EXPECT_EQ(sums.sums().scale[1], 0.75);
}

AttentionMoments random_moments() {
  AttentionMoments moments{kLayers, kHeads, kKvHeads, kHeadSize, {0.5, 3.0}, {}, {}};
  moments.query = joined(random_metrics(kLayers * kHeads, kHeadSize, 100));
  moments.output = joined(random_metrics(kLayers * kHeads, kHeadSize, 200));
  return moments;
}

/// Query head `head` of a layer in moments that joined(random_metrics(.., seed)) made.
Dense of_head(std::int64_t layer, std::int64_t head, std::uint64_t seed) {
  return random_covariance(kHeadSize, seed + static_cast<std::uint64_t>(layer * kHeads + head));
}

TEST(AttentionMetric, of_a_value_sums_what_its_query_heads_write) {
  const std::vector<double> metric = value_metric(random_moments(), 1);

  ASSERT_EQ(metric.size(), 18U);
  for (std::int64_t kv = 0; kv < kKvHeads; ++kv)
    for (std::int64_t i = 0; i < kHeadSize * kHeadSize; ++i) {
      const double expected = 3 * (of_head(1, 2 * kv, 200).values()[static_cast<std::size_t>(i)] +
                                   of_head(1, 2 * kv + 1, 200).values()[static_cast<std::size_t>(i)]);
      EXPECT_NEAR(metric[static_cast<std::size_t>(kv * 9 + i)], expected, 1e-13);
    }
}

TEST(AttentionMetric, of_a_key_weighs_queries_by_what_their_heads_values_write) {
  const auto covariances = random_metrics(kKvHeads, kHeadSize, 300);

  const std::vector<double> metric = key_metric(random_moments(), 0, joined(covariances));

  ASSERT_EQ(metric.size(), 18U);
  for (std::int64_t kv = 0; kv < kKvHeads; ++kv)
    for (std::int64_t i = 0; i < kHeadSize * kHeadSize; ++i) {
      double expected = 0;
      for (const std::int64_t head : {2 * kv, 2 * kv + 1})
        expected += 0.5 * (of_head(0, head, 200) * covariances[static_cast<std::size_t>(kv)]).trace() *
                    of_head(0, head, 100).values()[static_cast<std::size_t>(i)];
      EXPECT_NEAR(metric[static_cast<std::size_t>(kv * 9 + i)] / expected, 1, 1e-12);
    }
}

}  // namespace
}  // namespace headspan
