#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "stats/nulls/nulls.h"

namespace headspan {
namespace {

using Vector = std::vector<double>;
using Vectors = std::vector<Vector>;

double dot(const Vector& a, const Vector& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

void add(Vector& to, double factor, const Vector& from) {
  for (std::size_t i = 0; i < to.size(); ++i) to[i] += factor * from[i];
}

/// Random heads, and what they explain of each other, by Gram and Schmidt.
class Heads {
 public:
  explicit Heads(std::uint64_t seed) : random_(seed) {}

  Vectors draw(int count, int length) {
    Vectors columns(static_cast<std::size_t>(count), Vector(static_cast<std::size_t>(length)));
    for (Vector& column : columns)
      for (double& value : column) value = normal_(random_);
    return columns;
  }

  static Vectors orthonormal(Vectors columns) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) add(columns[i], -dot(columns[i], columns[j]), columns[j]);
      const double length = std::sqrt(dot(columns[i], columns[i]));
      for (double& value : columns[i]) value /= length;
    }
    return columns;
  }

  /// The mean over the columns of `target` of the share of their square in the span of `source`.
  static double r2(const Vectors& target, const Vectors& source) {
    double sum = 0;
    for (const Vector& column : target)
      for (const Vector& direction : source) sum += std::pow(dot(column, direction), 2) / dot(column, column);
    return sum / static_cast<double>(target.size());
  }

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

double mean_of(const Vector& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double standard_error(const Vector& values) {
  const double mean = mean_of(values);
  double squares = 0;
  for (const double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares) / static_cast<double>(values.size());
}

double share_above(const Vector& values, double r2) {
  return static_cast<double>(
             std::count_if(values.begin(), values.end(), [&](double value) { return value > r2; })) /
         static_cast<double>(values.size());
}

class Shapes : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(Shapes, PairsOfRandomProjections) {
  const auto [d, m] = GetParam();
  const PairNull null(d, m, 0);
  Heads heads(1);
  Vector drawn;

  for (int i = 0; i < 20000; ++i)
    drawn.push_back(Heads::r2(heads.draw(d, m), Heads::orthonormal(heads.draw(d, m))));

  EXPECT_NEAR(null.mean(), mean_of(drawn), 4 * standard_error(drawn));
  std::sort(drawn.begin(), drawn.end());
  for (const double level : {0.1, 0.5, 0.9, 0.99}) {
    const double r2 = drawn[static_cast<std::size_t>(level * 20000)];
    EXPECT_NEAR(null.share_above(r2), 1 - level, 4 * std::sqrt(level * (1 - level) / 20000)) << level;
  }
}

TEST_P(Shapes, BestOfSeveralSources) {
  const auto [d, m] = GetParam();
  const PairNull null(d, m, 0);
  const std::vector<std::int64_t> sources{3, 12, 0, 3};
  Heads heads(2);
  Vector best;

  for (int i = 0; i < 1500; ++i)
    for (const std::int64_t count : sources) {
      const Vectors target = heads.draw(d, m);
      Vector each;
      for (std::int64_t s = 0; s < count; ++s)
        each.push_back(Heads::r2(target, Heads::orthonormal(heads.draw(d, m))));
      if (count > 0) best.push_back(*std::max_element(each.begin(), each.end()));
    }

  EXPECT_NEAR(null.mean_best(sources), mean_of(best), 4 * standard_error(best));
  const auto n = static_cast<double>(best.size());
  EXPECT_NEAR(share_above(best, null.median_best(sources)), 0.5, 4 * 0.5 / std::sqrt(n));
}

INSTANTIATE_TEST_SUITE_P(PairNull, Shapes,
                         testing::Values(std::pair(1, 8), std::pair(4, 16), std::pair(8, 64)));

TEST(PairNull, ReadsHigherInSample) {
  constexpr int kHeadSize = 3, kHidden = 12, kTokens = 31;
  const PairNull null(kHeadSize, kHidden, kHeadSize / (kTokens - 1.0));
  Heads heads(3);
  Vector drawn;

  for (int i = 0; i < 20000; ++i) {
    const Vectors state = heads.draw(kHidden, kTokens - 1);  // a mean taken out costs one token
    const auto project = [&](const Vectors& weights) {
      Vectors head(weights.size(), Vector(kTokens - 1, 0.0));
      for (std::size_t j = 0; j < weights.size(); ++j)
        for (std::size_t k = 0; k < kHidden; ++k) add(head[j], weights[j][k], state[k]);
      return head;
    };
    drawn.push_back(Heads::r2(project(heads.draw(kHeadSize, kHidden)),
                              Heads::orthonormal(project(heads.draw(kHeadSize, kHidden)))));
  }

  const double left_out = 2 * 0.25 * 0.75 / (kTokens + 1);  // the next term in 1/n, for R² = d/m = 0.25
  EXPECT_NEAR(null.mean(), mean_of(drawn), left_out + 4 * standard_error(drawn));
  EXPECT_GT(mean_of(drawn) - 0.25, 0.05);
}

// d = 1, m = 3: the cosine is uniform, F(x) = sqrt(x); the best of C has mean C/(C+2) and median 4^(-1/C).
TEST(PairNull, ClosedFormsOfOneCoordinateInThreeDimensions) {
  const PairNull null(1, 3, 0.1);

  EXPECT_NEAR(null.mean(), 0.1 + 0.9 / 3, 1e-12);
  EXPECT_NEAR(null.share_above(0.1 + 0.9 * 0.25), 0.5, 1e-12);
  EXPECT_EQ(null.share_above(0.05), 1);
  EXPECT_NEAR(null.mean_best({4, 0, 4}), 0.1 + 0.9 * 4 / 6, 1e-7);
  EXPECT_NEAR(null.mean_best({4, 1}), 0.1 + 0.9 * (4.0 / 6 + 1.0 / 3) / 2, 1e-7);
  EXPECT_NEAR(null.median_best({4, 4}), 0.1 + 0.9 * std::pow(0.25, 0.25), 1e-8);
}

TEST(PairNull, IsNarrowInLargeModels) {
  const PairNull null(128, 8192, 0);  // standard deviation 1.7e-4

  EXPECT_NEAR(null.mean_best({1}), 128.0 / 8192, 1e-7);
  EXPECT_NEAR(null.median_best({1}), 128.0 / 8192, 1e-6);
  EXPECT_NEAR(null.mean_best({1000}), 128.0 / 8192 + 3.24 * 1.7e-4, 1e-4);  // 3.24: the best of 1000 normals
  EXPECT_EQ(null.share_above(0.1), 0);
}

TEST(PairNull, KnowsNothingWithoutAHiddenSizeOrTokens) {
  const std::vector<std::int64_t> sources{2, 3};

  for (const PairNull& null : {PairNull(8, 0, 0.1), PairNull(8, 64, 1)}) {
    EXPECT_TRUE(std::isnan(null.mean()));
    EXPECT_TRUE(std::isnan(null.share_above(0.1)));
    EXPECT_TRUE(std::isnan(null.mean_best(sources)));
    EXPECT_TRUE(std::isnan(null.median_best(sources)));
  }
  EXPECT_TRUE(std::isnan(PairNull(8, 64, 0).mean_best({0})));
}

TEST(PairNull, IsOneWhereAHeadSpansTheHiddenState) {
  for (const std::int64_t hidden : {8, 4}) {
    const PairNull null(8, hidden, 0.1);

    EXPECT_EQ(null.mean(), 1);
    EXPECT_EQ(null.share_above(0.5), 1);
    EXPECT_EQ(null.mean_best({2}), 1);
    EXPECT_EQ(null.median_best({2}), 1);
  }
}

}  // namespace
}  // namespace headspan
