#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>
#include <omp.h>

#include "dist/kernels/linear_product.h"
#include "dist/onednn.h"

namespace headspan {
namespace {

constexpr float kUnset = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kMargin = 64;  // values after y, which nothing may touch

std::size_t size(std::int64_t count) { return static_cast<std::size_t>(count); }

struct Shape {
  std::int64_t tokens, inputs, outputs;
};

const std::vector<Shape> kShapes = {
    {1, 1, 1},      {17, 5, 7},     {3, 0, 5},       {0, 4, 5},      {4, 5, 0},
    {8, 16, 48},    {9, 17, 49},    {100, 577, 131}, {31, 768, 240}, {33, 769, 241},
    {20, 1537, 70}, {2049, 33, 50}, {4100, 20, 30},  {64, 64, 1000},
};

/// Whole numbers that bfloat16 holds, whose sums FP32 holds: every order of the sums is exact.
std::vector<float> whole_numbers(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_int_distribution<int> number(-9, 9);
  std::vector<float> values(size(count));
  for (float& value : values) value = static_cast<float>(number(random));
  return values;
}

std::vector<std::uint16_t> bfloat16_bits(const std::vector<float>& values) {
  std::vector<std::uint16_t> bits;
  for (const float value : values) {
    std::uint32_t word = 0;
    std::memcpy(&word, &value, sizeof word);
    bits.push_back(static_cast<std::uint16_t>(word >> 16));
  }
  return bits;
}

struct Problem {
  Shape shape;
  std::vector<float> x, weight;
  std::vector<std::uint16_t> narrow = bfloat16_bits(weight);

  explicit Problem(const Shape& s)
      : shape(s), x(whole_numbers(s.tokens * s.inputs, 1)), weight(whole_numbers(s.outputs * s.inputs, 2)) {}

  template <class W>
  LinearOperands<W> operands(const std::vector<W>& matrix) const {
    return {x.data(), shape.tokens, shape.inputs, matrix.data(), shape.outputs};
  }

  /// Returns what `multiply` writes, and what is in the margin behind it.
  template <class Multiply>
  std::vector<float> result(const Multiply& multiply) const {
    std::vector<float> y(size(shape.tokens * shape.outputs) + kMargin, kUnset);
    multiply(y.data());
    return y;
  }

  void expect_product(const std::vector<float>& y) const {
    for (std::int64_t t = 0; t < shape.tokens; ++t)
      for (std::int64_t o = 0; o < shape.outputs; ++o) {
        double sum = 0;
        for (std::int64_t i = 0; i < shape.inputs; ++i)
          sum += double{x[size(t * shape.inputs + i)]} * double{weight[size(o * shape.inputs + i)]};
        ASSERT_EQ(y[size(t * shape.outputs + o)], sum) << t << ' ' << o;
      }
    for (std::size_t i = size(shape.tokens * shape.outputs); i < y.size(); ++i) ASSERT_TRUE(std::isnan(y[i]));
  }
};

std::string text_of(const Shape& s) {
  return std::to_string(s.tokens) + " x " + std::to_string(s.inputs) + " x " + std::to_string(s.outputs);
}

class LinearKernel : public testing::TestWithParam<int> {};

TEST_P(LinearKernel, IsTheProduct) {
  const int lanes = GetParam();
  if (lanes > best_lanes()) GTEST_SKIP() << "not on this processor";
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(text_of(shape));
    const Problem problem(shape);
    problem.expect_product(
        problem.result([&](float* y) { multiply_linear(problem.operands(problem.weight), y, lanes); }));
    problem.expect_product(
        problem.result([&](float* y) { multiply_linear(problem.operands(problem.narrow), y, lanes); }));
  }
}

INSTANTIATE_TEST_SUITE_P(Lanes, LinearKernel, testing::Values(4, 8, 16));

TEST(LinearProduct, OfTheLibraryAndTheFastestAreTheProduct) {
  for (const Shape& shape : kShapes) {
    SCOPED_TRACE(text_of(shape));
    const Problem problem(shape);
    const auto wide = problem.operands(problem.weight);
    const auto narrow = problem.operands(problem.narrow);
    if (has_onednn())
      problem.expect_product(problem.result(
          [&](float* y) { onednn_linear(wide.x, wide.tokens, wide.inputs, wide.weight, wide.outputs, y); }));
    problem.expect_product(problem.result([&](float* y) { multiply_by_library(wide, y); }));
    problem.expect_product(problem.result([&](float* y) { multiply_by_library(narrow, y); }));
    problem.expect_product(problem.result([&](float* y) { multiply_fastest(wide, y); }));
    problem.expect_product(problem.result([&](float* y) { multiply_fastest(narrow, y); }));
  }
}

/// Numbers whose sums are rounded.
std::vector<float> fractions(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> number;
  std::vector<float> values(size(count));
  for (float& value : values) value = number(random);
  return values;
}

TEST(LinearKernel, BitsDoNotDependOnThreadsNorOnOtherTokens) {
  constexpr std::int64_t kTokens = 301, kInputs = 1601, kOutputs = 531;
  const std::vector<float> x = fractions(kTokens * kInputs, 3), weight = fractions(kOutputs * kInputs, 4);
  const auto product = [&](std::int64_t first, std::int64_t tokens, int threads) {
    std::vector<float> y(size(tokens * kOutputs), kUnset);
    omp_set_num_threads(threads);
    multiply_linear<float>({x.data() + first * kInputs, tokens, kInputs, weight.data(), kOutputs}, y.data());
    omp_set_num_threads(1);
    return y;
  };
  const std::vector<float> y = product(0, kTokens, 1);
  EXPECT_EQ(product(0, kTokens, 3), y);
  for (const std::int64_t token : {0, 5, 300})
    EXPECT_EQ(product(token, 1, 2),
              std::vector<float>(y.begin() + token * kOutputs, y.begin() + (token + 1) * kOutputs));
}

TEST(LinearKernel, RoundsAsFloat32Does) {
  constexpr std::int64_t kTokens = 20, kInputs = 4000, kOutputs = 60;
  const std::vector<float> x = fractions(kTokens * kInputs, 5), weight = fractions(kOutputs * kInputs, 6);
  std::vector<float> y(size(kTokens * kOutputs), kUnset);
  multiply_linear<float>({x.data(), kTokens, kInputs, weight.data(), kOutputs}, y.data());
  for (std::int64_t t = 0; t < kTokens; ++t)
    for (std::int64_t o = 0; o < kOutputs; ++o) {
      double sum = 0, squares = 0;
      for (std::int64_t i = 0; i < kInputs; ++i) {
        const double term = double{x[size(t * kInputs + i)]} * double{weight[size(o * kInputs + i)]};
        sum += term;
        squares += term * term;
      }
      // The errors of 768 sums at a time, each of half a unit in the last place at most, are independent:
      // this is ten times their standard deviation.
      EXPECT_NEAR(y[size(t * kOutputs + o)], sum, std::ldexp(std::sqrt(768 * squares), -22)) << t << ' ' << o;
    }
}

}  // namespace
}  // namespace headspan
