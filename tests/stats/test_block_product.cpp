// Products of blocks, of whole numbers: they are exact, and equal to those of three loops.
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "stats/regression/block_product.h"

namespace headspan {
namespace {

struct Block {
  std::int64_t rows, columns, leading;
  std::vector<double> values;  // NaN where no element lies

  Block(std::int64_t rows_, std::int64_t columns_, std::int64_t gap, int seed)
      : rows(rows_), columns(columns_), leading(rows_ + gap) {
    values.assign(static_cast<std::size_t>(leading * columns), std::numeric_limits<double>::quiet_NaN());
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t i = 0; i < rows; ++i)
        at(i, j) = static_cast<double>((i * 7 + j * 13 + i * j + seed) % 23 - 11);
  }
  double& at(std::int64_t i, std::int64_t j) { return values[static_cast<std::size_t>(i + j * leading)]; }
};

class BlockProduct : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() > best_lanes()) GTEST_SKIP() << "this processor has shorter vectors";
  }
};

TEST_P(BlockProduct, IsThatOfThreeLoops) {
  for (const std::int64_t m : {1, 3, 8, 13, 24, 32, 47, 128})
    for (const std::int64_t n : {1, 5, 8, 12, 32, 33})
      for (const std::int64_t k : {0, 1, 7, 64}) {
        SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << k);
        Block a(m, k, 0, 1), b(n, k, 0, 2), c(m, n, 3, 3), expected = c;
        for (std::int64_t i = 0; i < m; ++i)
          for (std::int64_t j = 0; j < n; ++j)
            for (std::int64_t t = 0; t < k; ++t) expected.at(i, j) -= a.at(i, t) * b.at(j, t);
        subtract_block_product(m, n, k, a.values.data(), b.values.data(), c.values.data(), c.leading,
                               GetParam());
        for (std::int64_t j = 0; j < n; ++j) {
          for (std::int64_t i = 0; i < m; ++i) ASSERT_EQ(c.at(i, j), expected.at(i, j)) << i << ", " << j;
          for (std::int64_t i = m; i < c.leading; ++i) ASSERT_NE(c.at(i, j), c.at(i, j)) << "in a gap";
        }
      }
}

TEST_P(BlockProduct, OfABlockByItselfHasTheLowerTriangle) {
  for (const std::int64_t m : {1, 3, 8, 13, 24, 32, 47, 128})
    for (const std::int64_t k : {1, 16, 33}) {
      SCOPED_TRACE(testing::Message() << m << " x " << k);
      Block a(m, k, 0, 1), c(m, m, 3, 3), expected = c;
      subtract_block_square(m, k, a.values.data(), c.values.data(), c.leading, GetParam());
      for (std::int64_t j = 0; j < m; ++j)
        for (std::int64_t i = j; i < m; ++i) {
          for (std::int64_t t = 0; t < k; ++t) expected.at(i, j) -= a.at(i, t) * a.at(j, t);
          ASSERT_EQ(c.at(i, j), expected.at(i, j)) << i << ", " << j;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Lanes, BlockProduct, testing::Values(4, 8, 16));

}  // namespace
}  // namespace headspan
