// Products of 16-bit integers with bytes against sums in 64 bits, at sizes that no tile divides.
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "dist/kernels/byte_product.h"

namespace headspan {
namespace {

struct Case {
  std::int64_t tokens, terms, outputs, used, taken, wide;
};

std::vector<std::int64_t> expected(const Case& c, const std::vector<std::int8_t>& matrix,
                                   const std::vector<std::int16_t>& x) {
  std::vector<std::int64_t> y(static_cast<std::size_t>(c.tokens * c.taken));
  for (std::int64_t t = 0; t < c.tokens; ++t)
    for (std::int64_t i = 0; i < c.used; ++i)
      for (std::int64_t k = 0; k < c.taken; ++k)
        y[static_cast<std::size_t>(t * c.taken + k)] +=
            std::int64_t{x[static_cast<std::size_t>(t * c.used + i)]} *
            matrix[static_cast<std::size_t>(i * c.outputs + k)];
  return y;
}

void check(const Case& c, int largest) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> bytes(-128, 127), wide(-largest, largest), narrow(-127, 127);
  std::vector<std::int8_t> matrix(static_cast<std::size_t>(c.terms * c.outputs));
  for (std::int8_t& value : matrix) value = static_cast<std::int8_t>(bytes(random));
  std::vector<std::int16_t> x(static_cast<std::size_t>(c.tokens * c.used));
  for (std::size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<std::int16_t>(static_cast<std::int64_t>(i) % c.used < c.wide ? wide(random)
                                                                                    : narrow(random));
  const std::vector<std::int64_t> sums = expected(c, matrix, x);
  for (const bool fused : {false, has_byte_products()}) {
    std::vector<std::int32_t> y(sums.size(), -1);
    ByteMatrix(matrix.data(), c.terms, c.outputs)
        .multiply(x.data(), {c.tokens, c.used, c.taken}, y.data(), fused);
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::int64_t{y[i]}, sums[i]);
  }
}

TEST(ByteProduct, AgreesWithSumsIn64Bits) {
  for (const Case& c :
       {Case{1, 1, 1, 1, 1, 0}, Case{1, 1, 1, 1, 1, 1}, Case{9, 7, 49, 7, 49, 3}, Case{8, 8, 48, 8, 48, 8},
        Case{17, 130, 97, 101, 50, 6}, Case{128, 64, 200, 64, 200, 0}, Case{3, 40, 50, 33, 7, 33}})
    check(c, ByteMatrix::kLargest);
}

TEST(ByteProduct, SumsMayExceed32BitsOnTheWay) {
  // 600 products of 127 * 32 639 are above 2^31; their negatives bring the sum back.
  const std::int64_t terms = 1200;
  std::vector<std::int8_t> matrix(static_cast<std::size_t>(terms), 127);
  std::vector<std::int16_t> x(static_cast<std::size_t>(terms), ByteMatrix::kLargest);
  for (std::size_t i = x.size() / 2; i < x.size(); ++i) x[i] = -ByteMatrix::kLargest;
  x[0] -= 5;
  std::int32_t y = 0;
  ByteMatrix(matrix.data(), terms, 1).multiply(x.data(), {1, terms, 1}, &y);
  EXPECT_EQ(y, -5 * 127);
}

}  // namespace
}  // namespace headspan
