// The loops over the values of a panel against arithmetic by significant digits, done with frexp.
#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "base/splitmix64.h"
#include "stats/gram/panel_values.h"

namespace headspan {
namespace {

constexpr std::int64_t kCount = 1003;  // not a multiple of any vector's length

/// x to `bits` significant bits, to nearest, ties to even.
double to_bits(double x, int bits) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(x, bits - exponent)), exponent - bits);
}

/// What `precision` multiplies in place of x.
double expected_value(double x, Precision precision) {
  if (precision == Precision::float64) return x;
  const double single = to_bits(x, 24);
  if (precision == Precision::float32) return single;
  const double high = to_bits(single, 8);
  return precision == Precision::bfloat16 ? high : high + to_bits(single - high, 8);
}

template <class T>
std::vector<T> values_of(std::uint64_t seed) {
  SplitMix64 random(seed);
  std::vector<T> values;
  for (std::int64_t j = 0; j < kCount; ++j)
    values.push_back(static_cast<T>(
        std::ldexp(static_cast<double>(random.next() >> 11) - 0x1p52, static_cast<int>(j % 40) - 60)));
  return values;
}

template <class T, class P>
void expect_shifted(Precision precision) {
  const std::vector<T> in = values_of<T>(1);
  const std::vector<double> origin = values_of<double>(2), start = values_of<double>(3);
  std::vector<P> out(kCount);
  std::vector<double> sums = start;

  shift_values(in.data(), origin.data(), kCount, precision, out.data());
  add_shifted(in.data(), origin.data(), kCount, precision, sums.data());

  for (std::size_t j = 0; j < in.size(); ++j) {
    const double expected = expected_value(static_cast<double>(in[j]) - origin[j], precision);
    ASSERT_EQ(static_cast<double>(out[j]), expected) << j;
    ASSERT_EQ(sums[j], start[j] + expected) << j;
  }
}

TEST(ShiftValues, RoundsAsThePrecisionSays) {
  expect_shifted<double, double>(Precision::float64);
  expect_shifted<float, double>(Precision::float64);
  expect_shifted<double, double>(Precision::split);
  expect_shifted<float, double>(Precision::split);
  expect_shifted<double, float>(Precision::float32);
  expect_shifted<float, float>(Precision::float32);
  expect_shifted<double, float>(Precision::bfloat16);
  expect_shifted<float, float>(Precision::bfloat16);
}

TEST(ShiftValues, BreaksTiesToEven) {
  const float in[] = {1 + 0x1p-8F, 1 + 3 * 0x1p-8F, -1 - 0x1p-8F};  // halfway between bfloat16 values
  const double origin[] = {0, 0, 0};
  float out[3];

  shift_values(in, origin, 3, Precision::bfloat16, out);

  EXPECT_EQ(out[0], 1);
  EXPECT_EQ(out[1], 1 + 0x1p-6F);
  EXPECT_EQ(out[2], -1);
}

TEST(AddValues, AddsInDouble) {
  const std::vector<float> single = values_of<float>(4);
  const std::vector<double> full = values_of<double>(5), start = values_of<double>(6);
  std::vector<double> sums = start;

  add_values(single.data(), kCount, sums.data());
  add_values(full.data(), kCount, sums.data());

  for (std::size_t j = 0; j < sums.size(); ++j)
    ASSERT_EQ(sums[j], start[j] + static_cast<double>(single[j]) + full[j]) << j;
}

}  // namespace
}  // namespace headspan
