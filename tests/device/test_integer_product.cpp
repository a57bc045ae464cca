// Products in integers against 64-bit integers and long double.
#include <cmath>

#include "base/splitmix64.h"
#include "device/integer_product.h"
#include "support/on_device.h"
#include "support/synthetic.h"

namespace headspan {
namespace {

using IntegerProduct = OnDevice;
INSTANTIATE_TEST_SUITE_P(On, IntegerProduct, testing::Values(at::kCPU, at::kCUDA), name_of_device);

constexpr std::int64_t kWhole = 127 * 65536;  // of the largest value of a column

/// Whole numbers up to kWhole times a power of two of each column, which has kWhole itself: [tokens,
/// columns].
at::Tensor whole_numbers(std::int64_t tokens, std::int64_t columns, std::uint64_t seed) {
  at::Tensor values = at::empty({tokens, columns}, at::kFloat);
  SplitMix64 random(seed);
  float* out = values.data_ptr<float>();
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t j = 0; j < columns; ++j) {
      const auto whole = static_cast<std::int64_t>(random.next() % (2 * kWhole + 1)) - kWhole;
      *out++ = std::ldexp(static_cast<float>(t == j % tokens ? kWhole : whole), static_cast<int>(j % 5) - 30);
    }
  return values;
}

/// The product of whole numbers without the last digits' (c c').
std::int64_t digit_product(std::int64_t x, std::int64_t y) {
  const auto last = [](std::int64_t v) { return ((v % 256 + 256 + 128) % 256) - 128; };
  return x * y - last(x) * last(y);
}

at::Tensor on_host(const at::Tensor& values) { return values.to(at::kCPU).contiguous(); }

// More columns than are split at once, tokens that have to be padded, and shapes that tensor cores refuse.
TEST_P(IntegerProduct, IsExactForWholeNumbers) {
  for (const std::int64_t tokens : {1, 37, 64})
    for (const std::int64_t m : {3, 40, 1030}) {
      const std::int64_t n = 16;
      const at::Tensor x = whole_numbers(tokens, m, 1), y = whole_numbers(tokens, n, 2);
      at::Tensor sums = at::ones({m, n}, at::dtype(at::kDouble).device(device_));
      add_integer_product(sums, integer_columns(x.to(device_)), integer_columns(y.to(device_)));
      const at::Tensor result = on_host(sums);
      for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < n; ++j) {
          std::int64_t expected = 0;
          for (std::int64_t t = 0; t < tokens; ++t) {
            const auto whole = [&](const at::Tensor& values, std::int64_t column) {
              return std::llround(std::ldexp(values.data_ptr<float>()[t * values.size(1) + column],
                                             30 - static_cast<int>(column % 5)));
            };
            expected += digit_product(whole(x, i), whole(y, j));
          }
          const double scaled =
              std::ldexp(static_cast<double>(expected), static_cast<int>(i % 5 + j % 5) - 60);
          ASSERT_DOUBLE_EQ(result.data_ptr<double>()[i * n + j], 1 + scaled) << i << ", " << j;
        }
    }
}

// Each factor of a product errs by half a unit, and by Cauchy and Schwarz the sum by no more than the root of
// what the largest values' squares and the other factor's sum to; c c' besides.
TEST_P(IntegerProduct, ErrsByHalfAUnitOfTheLargestValue) {
  const std::int64_t tokens = 3000, n = 24;
  const Activations z = correlated(tokens, n, 3, 0.5, 7, 3);
  const at::Tensor values =
      at::from_blob(const_cast<double*>(z.values.data()), {tokens, n}, at::kDouble).to(at::kFloat);
  at::Tensor sums = at::zeros({n, n}, at::dtype(at::kDouble).device(device_));
  const IntegerColumns columns = integer_columns(values.to(device_));
  add_integer_product(sums, columns, columns);
  const at::Tensor result = on_host(sums), unit = on_host(columns.unit);
  const auto value = [&](std::int64_t t, std::int64_t j) {
    return static_cast<long double>(values.data_ptr<float>()[t * n + j]);
  };
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      long double expected = 0, first = 0, second = 0;
      for (std::int64_t t = 0; t < tokens; ++t) {
        expected += value(t, i) * value(t, j);
        first += value(t, i) * value(t, i);
        second += value(t, j) * value(t, j);
      }
      const double u = unit.data_ptr<double>()[i], v = unit.data_ptr<double>()[j];
      const double root = std::sqrt(static_cast<double>(tokens));
      const double bound =
          0.5 * root *
              (u * static_cast<double>(std::sqrt(second)) + v * static_cast<double>(std::sqrt(first))) +
          static_cast<double>(tokens) * u * v * (0.25 + 128 * 128);
      ASSERT_NEAR(result.data_ptr<double>()[i * n + j], static_cast<double>(expected), bound);
      // And that is little: half of what bfloat16's hi + lo may err by, 2^-17 of a value.
      ASSERT_LT(bound, 0.5 * 0x1p-16 * static_cast<double>(std::sqrt(first * second)));
    }
}

TEST_P(IntegerProduct, OfAColumnOfZerosIsZeroAndOfNoNumberIsNone) {
  at::Tensor values = whole_numbers(20, 24, 5);
  values.select(1, 3).zero_();
  values.select(1, 7).select(0, 4).fill_(std::nan(""));
  at::Tensor sums = at::zeros({24, 24}, at::dtype(at::kDouble).device(device_));
  const IntegerColumns columns = integer_columns(values.to(device_));
  add_integer_product(sums, columns, columns);
  const at::Tensor result = on_host(sums);
  for (std::int64_t j = 0; j < 24; ++j) {
    const double zero = result.data_ptr<double>()[3 * 24 + j];
    EXPECT_EQ(std::isnan(zero), j == 7);
    if (j != 7) {
      EXPECT_EQ(zero, 0);
    }
    EXPECT_TRUE(std::isnan(result.data_ptr<double>()[7 * 24 + j]));
    EXPECT_TRUE(std::isnan(result.data_ptr<double>()[j * 24 + 7]));
  }
}

TEST_P(IntegerProduct, OfPartsIsAPartOfTheProduct) {
  const IntegerColumns columns = integer_columns(whole_numbers(48, 64, 6).to(device_));
  at::Tensor all = at::zeros({64, 64}, at::dtype(at::kDouble).device(device_));
  add_integer_product(all, columns, columns);
  at::Tensor part = at::zeros({20, 24}, all.options());
  add_integer_product(part, columns.narrow(5, 20), columns.narrow(30, 24));
  EXPECT_TRUE(at::equal(part, all.narrow(0, 5, 20).narrow(1, 30, 24)));
}

}  // namespace
}  // namespace headspan
