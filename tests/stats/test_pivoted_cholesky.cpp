// Pivoted factors against LAPACK's dpstrf.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "stats/regression/pivoted_cholesky.h"

extern "C" void dpstrf_(const char* uplo, const int* n, double* a, const int* lda, int* piv, int* rank,
                        const double* tol, double* work, int* info);

namespace headspan {
namespace {

constexpr double kTolerance = 1e-12;

/// X X^T for X: [n, rank] of rows whose norms differ.
std::vector<double> product_of_rank(std::int64_t n, std::int64_t rank) {
  std::mt19937_64 random(static_cast<std::uint64_t>(1000 * n + rank));
  std::normal_distribution<double> normal;
  std::vector<double> x(to_size(n * rank)), a(to_size(n * n));
  for (double& value : x) value = normal(random) / std::sqrt(static_cast<double>(rank));
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t t = 0; t < rank; ++t)
        a[to_size(i + j * n)] += x[to_size(i + t * n)] * x[to_size(j + t * n)];
  return a;
}

struct Found {
  std::int64_t rank;
  std::vector<double> lower;  // [n, rank], zeros above the diagonal
  std::vector<int> order;
};

Found lower_part(std::int64_t n, std::int64_t rank, const std::vector<double>& a, std::vector<int> order) {
  Found found{rank, std::vector<double>(to_size(n * rank)), std::move(order)};
  for (std::int64_t j = 0; j < rank; ++j)
    std::copy(a.begin() + j * n + j, a.begin() + (j + 1) * n, found.lower.begin() + j * n + j);
  return found;
}

Found of_lapack(std::int64_t n, std::vector<double> a) {
  const int size = static_cast<int>(n);
  int rank = 0, info = 0;
  std::vector<int> order(to_size(n));
  std::vector<double> work(to_size(2 * n));
  dpstrf_("L", &size, a.data(), &size, order.data(), &rank, &kTolerance, work.data(), &info);
  for (int& column : order) --column;
  return lower_part(n, rank, a, order);
}

Found of_headspan(std::int64_t n, std::vector<double> a) {
  // Only the lower triangle is valid.
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < j; ++i) a[to_size(i + j * n)] = std::numeric_limits<double>::quiet_NaN();
  std::vector<int> order(to_size(n));
  const std::int64_t rank = pivoted_cholesky(n, a.data(), kTolerance, order.data());
  return lower_part(n, rank, a, order);
}

void expect_lapacks_factor(std::int64_t n, std::int64_t rank) {
  SCOPED_TRACE(testing::Message() << n << " columns of rank " << rank);
  const std::vector<double> a = product_of_rank(n, rank);
  const Found found = of_headspan(n, a), expected = of_lapack(n, a);
  ASSERT_EQ(found.rank, expected.rank);
  ASSERT_EQ(found.rank, std::min(n, rank));
  for (std::int64_t k = 0; k < found.rank; ++k)
    ASSERT_EQ(found.order[to_size(k)], expected.order[to_size(k)]);
  // The columns that were dropped may come in another order.
  std::vector<std::int64_t> row_of(to_size(n));
  for (std::int64_t i = 0; i < n; ++i) row_of[to_size(expected.order[to_size(i)])] = i;
  for (std::int64_t j = 0; j < found.rank; ++j)
    for (std::int64_t i = j; i < n; ++i)
      ASSERT_NEAR(found.lower[to_size(i + j * n)],
                  expected.lower[to_size(row_of[to_size(found.order[to_size(i)])] + j * n)], 1e-8)
          << i << ", " << j;
}

TEST(PivotedCholesky, IsLapacks) {
  for (const std::int64_t n : {1, 2, 7, 16, 17, 32, 33, 64, 100, 160, 257, 640})
    expect_lapacks_factor(n, 2 * n);
}

TEST(PivotedCholesky, StopsAtTheRank) {
  for (const auto& [n, rank] :
       {std::pair<std::int64_t, std::int64_t>{2, 1}, {33, 5}, {64, 16}, {160, 100}, {257, 256}})
    expect_lapacks_factor(n, rank);
}

TEST(PivotedCholesky, TakesTheFirstOfEquals) {
  const std::int64_t n = 20;
  std::vector<double> a(to_size(n * n));
  for (std::int64_t i = 0; i < n; ++i) a[to_size(i * (n + 1))] = i < 4 ? 1 : 2;
  const Found found = of_headspan(n, a);
  ASSERT_EQ(found.rank, n);
  EXPECT_EQ(found.order, of_lapack(n, a).order);
}

TEST(PivotedCholesky, HasNoColumnsOfWhatIsNotPositive) {
  EXPECT_EQ(of_headspan(3, std::vector<double>(9, 0.0)).rank, 0);
  EXPECT_EQ(of_headspan(2, {kTolerance, 0, 0, kTolerance}).rank, 0);
  EXPECT_EQ(of_headspan(2, std::vector<double>(4, std::numeric_limits<double>::quiet_NaN())).rank, 0);
}

}  // namespace
}  // namespace headspan
