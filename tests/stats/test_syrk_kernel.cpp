#include <cmath>

#include <gtest/gtest.h>
#include <omp.h>

#include "stats/gram/syrk_kernel.h"
#include "stats/staircase_cases.h"

namespace headspan {
namespace {

/// T: the type of the activations, P that of the products.
template <class T, class P>
std::vector<double> sums_of(SyrkKernel<P>& sums, const Case& c, int* parts = nullptr) {
  return written_by<T>(
      c, [&](const PanelOperands<T>& panel, const PanelOrigin& origin, const Staircase& staircase) {
        sums.add(panel, origin, staircase, [&] {
          if (parts != nullptr) ++*parts;
        });
      });
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
