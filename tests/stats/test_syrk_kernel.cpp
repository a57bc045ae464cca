#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>
#include <omp.h>

#include "stats/gram/syrk_kernel.h"

namespace headspan {
namespace {

constexpr double kUntouched = 0.5;

/// [count, tokens] with gaps of NaN, which no sum may touch. Whole numbers, whose sums are exact.
template <class T>
struct Operand {
  std::int64_t leading;
  std::vector<T> values;

  Operand(std::int64_t count, std::int64_t tokens, unsigned seed)
      : leading(count + 3),
        values(static_cast<std::size_t>(leading * tokens), std::numeric_limits<T>::quiet_NaN()) {
    std::mt19937 random(seed);
    std::uniform_int_distribution<int> number(-9, 9);
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t i = 0; i < count; ++i)
        values[static_cast<std::size_t>(i + t * leading)] = static_cast<T>(number(random));
  }
  double at(std::int64_t i, std::int64_t t) const {
    return values[static_cast<std::size_t>(i + t * leading)];
  }
};

using FirstRows = std::vector<std::int64_t>;

FirstRows steps(std::int64_t columns, std::int64_t width, std::int64_t height) {
  FirstRows rows;
  for (std::int64_t j = 0; j < columns; ++j) rows.push_back(j / width * height);
  return rows;
}

struct Case {
  std::int64_t rows, columns, tokens;
  FirstRows first_row;
  std::int64_t block = 1, distance = 1;  // of the columns, as PanelOperands has it

  /// Returns where a column is stored.
  std::int64_t offset(std::int64_t column) const { return column / block * distance + column % block; }
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const std::int64_t n : {1, 7, 8, 9, 23, 24, 25, 64, 65, 240, 241})
    for (const std::int64_t tokens : {1, 255, 256, 257}) {
      all.push_back({n, n, tokens, steps(n, 1, 1)});          // a triangle
      all.push_back({n, 2 * n, tokens, steps(2 * n, 3, 5)});  // columns at the end with no row
    }
  all.push_back({100, 30, 700, FirstRows(30, 0)});
  all.push_back({100, 30, 20, FirstRows(30, 100)});  // nothing
  all.push_back({0, 5, 20, FirstRows(5, 0)});
  all.push_back({5, 0, 20, {}});
  all.push_back({5, 5, 0, FirstRows(5, 0)});
  all.push_back({300, 2100, 3, steps(2100, 50, 6)});  // several panels of columns
  all.push_back({2100, 2100, 2, steps(2100, 1, 1)});
  for (const std::int64_t block : {1, 5, 8, 12, 64, 100})
    all.push_back({90, 150, 300, steps(150, 2, 1), block, 3 * block});
  return all;
}

/// What is subtracted from an operand: whole numbers too.
std::vector<double> origin_of(std::int64_t count, int seed) {
  std::vector<double> origin;
  for (std::int64_t i = 0; i < count; ++i) origin.push_back(static_cast<double>((i * seed) % 7 - 2));
  return origin;
}

/// T: the type of the activations, P that of the products.
template <class T, class P>
std::vector<double> sums_of(SyrkKernel<P>& sums, const Case& c, int* parts = nullptr) {
  const Operand<T> rows(c.rows, c.tokens, 1), columns(c.offset(c.columns), c.tokens, 2);
  const std::vector<double> row_origin = origin_of(c.rows, 3), column_origin = origin_of(c.columns, 5);
  const std::int64_t leading = c.rows + 2;
  std::vector<double> result(static_cast<std::size_t>(leading * c.columns), kUntouched);
  sums.add(PanelOperands<T>{rows.values.data(), columns.values.data(), rows.leading, columns.leading,
                            c.tokens, c.block, c.distance},
           {row_origin.data(), column_origin.data()},
           {result.data(), leading, c.rows, c.columns, c.first_row.data()}, [&] {
             if (parts != nullptr) ++*parts;
           });
  return result;
}

std::vector<double> expected(const Case& c) {
  const Operand<double> rows(c.rows, c.tokens, 1), columns(c.offset(c.columns), c.tokens, 2);
  const std::vector<double> row_origin = origin_of(c.rows, 3), column_origin = origin_of(c.columns, 5);
  const std::int64_t leading = c.rows + 2;
  std::vector<double> result(static_cast<std::size_t>(leading * c.columns), kUntouched);
  for (std::int64_t j = 0; j < c.columns; ++j)
    for (std::int64_t i = c.first_row[static_cast<std::size_t>(j)]; i < c.rows; ++i)
      for (std::int64_t t = 0; t < c.tokens; ++t)
        result[static_cast<std::size_t>(i + j * leading)] +=
            (rows.at(i, t) - row_origin[static_cast<std::size_t>(i)]) *
            (columns.at(c.offset(j), t) - column_origin[static_cast<std::size_t>(j)]);
  return result;
}

class OuterSumsTest : public testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (GetParam() > best_lanes()) GTEST_SKIP() << "this processor has shorter vectors";
  }
};

TEST_P(OuterSumsTest, AreExactOfWholeNumbersAndTouchNothingElse) {
  SyrkKernel<double> doubles(Precision::float64, GetParam()), split(Precision::split, GetParam());
  SyrkKernel<float> floats(Precision::float32, GetParam()), halves(Precision::bfloat16, GetParam());
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.columns << ", " << c.tokens << " tokens, by "
                                    << c.block);
    const std::vector<double> sums = expected(c);
    ASSERT_EQ(sums_of<double>(doubles, c), sums);
    ASSERT_EQ(sums_of<float>(doubles, c), sums);
    ASSERT_EQ(sums_of<double>(split, c), sums);
    ASSERT_EQ(sums_of<float>(split, c), sums);
    ASSERT_EQ(sums_of<double>(floats, c), sums);
    ASSERT_EQ(sums_of<float>(floats, c), sums);
    ASSERT_EQ(sums_of<double>(halves, c), sums);
    ASSERT_EQ(sums_of<float>(halves, c), sums);
  }
}

/// Returns the sums of a triangle on each of several numbers of threads.
template <class T>
std::vector<std::vector<double>> sums_by_threads(Precision precision, int lanes) {
  const std::vector<double> origin(500, 0.0);
  const FirstRows triangle = steps(500, 1, 1);
  Operand<T> values(500, 1100, 1);
  for (T& value : values.values) value = std::sin(value);
  const int before = omp_get_max_threads();
  std::vector<std::vector<double>> found;
  for (const int threads : {1, 2, 5}) {
    omp_set_num_threads(threads);
    SyrkKernel<T> sums(precision, lanes);
    std::vector<double> result(500 * 500);
    sums.add(
        PanelOperands<T>{values.values.data(), values.values.data(), values.leading, values.leading, 1100},
        {origin.data(), origin.data()}, {result.data(), 500, 500, 500, triangle.data()}, [] {});
    found.push_back(result);
  }
  omp_set_num_threads(before);
  return found;
}

TEST_P(OuterSumsTest, HaveTheSameBitsWithAnyNumberOfThreads) {
  const auto doubles = sums_by_threads<double>(Precision::float64, GetParam());
  const auto floats = sums_by_threads<float>(Precision::float32, GetParam());
  EXPECT_EQ(doubles[1], doubles[0]);
  EXPECT_EQ(doubles[2], doubles[0]);
  EXPECT_EQ(floats[1], floats[0]);
  EXPECT_EQ(floats[2], floats[0]);
  // FP32 sums 512 terms in [-1, 1] at a time, whose roundings add up like their root.
  for (std::size_t i = 0; i < doubles[0].size(); ++i)
    ASSERT_NEAR(floats[0][i], doubles[0][i], 1100 * 23 * 6e-8) << i;
}

TEST_P(OuterSumsTest, LetProgressBeMadeBetweenParts) {
  SyrkKernel<double> sums(Precision::float64, GetParam());
  int parts = 0;
  sums_of<double>(sums, {10, 10, 513, FirstRows(10, 0)}, &parts);
  EXPECT_EQ(parts, 3);
}

INSTANTIATE_TEST_SUITE_P(Lanes, OuterSumsTest, testing::Values(4, 8, 16));

}  // namespace
}  // namespace headspan
