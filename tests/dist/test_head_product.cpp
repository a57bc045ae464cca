// Products of heads with their blocks against sums in double, at sizes that no tile divides.
#include <cmath>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "dist/kernels/head_product.h"

namespace headspan {
namespace {

std::vector<float> random_numbers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  for (float& x : numbers) x = normal(random);
  return numbers;
}

double expected(const HeadOperands& of, std::int64_t token, std::int64_t head, std::int64_t output) {
  double sum = 0;
  for (std::int64_t i = 0; i < of.d; ++i)
    sum += static_cast<double>(of.x[(token * of.heads + head) * of.d + i]) *
           static_cast<double>(of.blocks[(head * of.d + i) * of.d + output]);
  return sum;
}

class HeadProduct : public testing::TestWithParam<std::int64_t> {};

TEST_P(HeadProduct, AgreesWithSumsInDouble) {
  const std::int64_t d = GetParam(), heads = 3, tokens = 15;
  const std::vector<float> x = random_numbers(tokens * heads * d, 1),
                           blocks = random_numbers(heads * d * d, 2);
  const HeadOperands all{x.data(), tokens, heads, d, blocks.data()};
  for (int lanes = 4; lanes <= best_lanes(); lanes *= 2) {
    std::vector<float> y(x.size(), NAN);
    multiply_heads(all, y.data(), lanes);
    for (std::size_t k = 0; k < y.size(); ++k) {
      const auto at = static_cast<std::int64_t>(k);
      EXPECT_NEAR(static_cast<double>(y[k]), expected(all, at / (heads * d), at / d % heads, at % d),
                  1e-5 * static_cast<double>(d))
          << k;
    }
    std::vector<float> last(static_cast<std::size_t>(heads * d));
    multiply_heads({&x[x.size() - last.size()], 1, heads, d, blocks.data()}, last.data(), lanes);
    EXPECT_EQ(last, std::vector<float>(y.end() - heads * d, y.end())) << "a token beside others";
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, HeadProduct, testing::Values(1, 7, 8, 16, 24, 64, 80, 128, 200));

}  // namespace
}  // namespace headspan
