#include <cmath>
#include <random>

#include <gtest/gtest.h>

#include "stats/gram/float_gemm.h"

namespace headspan {
namespace {

using Kind = FloatGemm::Kind;

/// [leading, tokens], column-major; the rows behind `count` are NaN, which no product may touch. Every value
/// is a bfloat16: 8 bits, so that a product has 16 and is exact in FP32.
std::vector<float> panel(std::int64_t count, std::int64_t leading, std::int64_t tokens, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> mantissa(-255, 255), exponent(-6, 3);
  std::vector<float> values(static_cast<std::size_t>(leading * tokens), std::nanf(""));
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t i = 0; i < count; ++i)
      values[static_cast<std::size_t>(i + t * leading)] =
          std::ldexp(static_cast<float>(mantissa(random)), exponent(random));
  return values;
}

/// The largest error of a product, in units of eps32 times the sum of the sizes of its terms.
double largest_error(Kind kind, std::int64_t m, std::int64_t n, std::int64_t tokens, bool alone) {
  const std::int64_t row = 3, column = alone ? 1 : 5, lda = row + m + 8, ldb = alone ? lda : column + n + 4;
  const std::vector<float> rows = panel(lda - 2, lda, tokens, 1), columns = panel(ldb - 1, ldb, tokens, 2);
  const std::vector<float>& right = alone ? rows : columns;
  FloatGemm gemm(kind);
  gemm.open({rows.data(), right.data(), lda, ldb, tokens});
  std::vector<float> block(static_cast<std::size_t>(m * n), std::nanf(""));
  gemm.multiply(row, m, column, n, block.data());

  double worst = 0;
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < m; ++i) {
      double sum = 0, size = 0;
      for (std::int64_t t = 0; t < tokens; ++t) {
        const double term = double{rows[static_cast<std::size_t>(row + i + t * lda)]} *
                            right[static_cast<std::size_t>(column + j + t * ldb)];
        sum += term;
        size += std::abs(term);
      }
      const double error = std::abs(block[static_cast<std::size_t>(i + j * m)] - sum);
      worst = std::isnan(error) ? INFINITY : std::max(worst, error / (size * 6e-8 + 1e-300));
    }
  return worst;
}

class FloatGemmTest : public ::testing::TestWithParam<Kind> {};

TEST_P(FloatGemmTest, SumsTheProductsOfItsColumns) {
  if (!FloatGemm::is_possible(GetParam())) GTEST_SKIP() << "not on this processor";
  const std::int64_t sizes[][3] = {{1, 1, 1},       {7, 5, 3},      {64, 64, 256}, {65, 130, 33},
                                   {200, 31, 1000}, {512, 512, 64}, {33, 70, 2049}};
  for (const auto& [m, n, tokens] : sizes)
    for (const bool alone : {false, true}) {
      if (alone && m < n) continue;  // the columns come from the rows there are
      SCOPED_TRACE(testing::Message() << m << " x " << n << " x " << tokens << (alone ? ", alone" : ""));
      // Sums in FP32 of t terms err by sqrt(t) roundings or so, by t at the very most.
      EXPECT_LT(largest_error(GetParam(), m, n, tokens, alone), 4 + std::sqrt(static_cast<double>(tokens)));
    }
}

INSTANTIATE_TEST_SUITE_P(Kinds, FloatGemmTest,
                         ::testing::Values(Kind::blas, Kind::onednn_float, Kind::onednn_bfloat16),
                         [](const auto& kind) {
                           return kind.param == Kind::blas           ? "blas"
                                  : kind.param == Kind::onednn_float ? "onednn_float"
                                                                     : "onednn_bfloat16";
                         });

TEST(FloatGemm, TakesBfloat16ForNothingElse) {
  EXPECT_NE(FloatGemm::best(Precision::float32), Kind::onednn_bfloat16);
  EXPECT_EQ(FloatGemm::best(Precision::bfloat16) == Kind::onednn_bfloat16,
            FloatGemm::is_possible(Kind::onednn_bfloat16));
}

}  // namespace
}  // namespace headspan
