// Numbers of 16 bits against the definition of their formats.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "base/splitmix64.h"
#include "io/archive/element_type.h"

namespace headspan {
namespace {

/// Returns the number with these bits by the formula of IEEE 754: `fraction` bits behind the point.
double by_formula(std::uint32_t bits, int fraction) {
  const int exponent_bits = 15 - fraction, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> fraction) & ((1 << exponent_bits) - 1);
  const double mantissa = std::ldexp(bits & ((1U << fraction) - 1), -fraction),
               sign = bits >> 15 != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return mantissa == 0 ? sign * INFINITY : NAN;
  return exponent == 0 ? sign * std::ldexp(mantissa, 1 - bias)
                       : sign * std::ldexp(1 + mantissa, exponent - bias);
}

int fraction_of(ElementType type) { return type == ElementType::float16 ? 10 : 7; }

TEST(ElementTypeTest, EveryNumberOf16BitsIsWidenedAndComesBack) {
  for (const ElementType type : {ElementType::float16, ElementType::bfloat16})
    for (std::uint32_t bits = 0; bits < 1U << 16; ++bits) {
      const std::uint8_t bytes[] = {static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(bits >> 8)};
      float value = 0;
      widen(type, bytes, 1, &value);
      const double expected = by_formula(bits, fraction_of(type));
      std::uint8_t back[2];
      narrow(type, &value, 1, back);
      if (std::isnan(expected)) {
        EXPECT_TRUE(std::isnan(value));
        float again = 0;
        widen(type, back, 1, &again);
        EXPECT_TRUE(std::isnan(again));
        continue;
      }
      ASSERT_EQ(value, expected) << bits;
      ASSERT_EQ(std::signbit(value), bits >> 15 != 0) << bits;
      ASSERT_EQ(back[0] | back[1] << 8, static_cast<int>(bits));
    }
}

// The nearest number is one whose neighbours are not nearer, and whose last bit is 0 where two are as near.
TEST(ElementTypeTest, NarrowsToTheNearestNumber) {
  SplitMix64 random(1);
  for (const ElementType type : {ElementType::float16, ElementType::bfloat16})
    for (int i = 0; i < 200000; ++i) {
      auto bits = static_cast<std::uint32_t>(random.next());
      if (i % 4 == 0) bits &= ~0xfffU;                          // where two are often as near
      if (i % 4 == 1) bits = (bits & 0x81ffffff) + 0x37000000;  // small numbers of float16
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      if (!std::isfinite(value)) continue;
      std::uint8_t bytes[2];
      narrow(type, &value, 1, bytes);
      const auto found = static_cast<std::uint32_t>(bytes[0] | bytes[1] << 8), size = found & 0x7fff;
      const int fraction = fraction_of(type);
      const auto distance = [&](std::uint32_t other) {
        // infinity stands where the next number would be
        const std::uint32_t infinity = ((1U << (15 - fraction)) - 1) << fraction;
        const double number = other == infinity ? 2 * by_formula(other - (1U << fraction), fraction)
                                                : by_formula(other, fraction);
        return std::abs(std::abs(double{value}) - number);
      };
      ASSERT_EQ(found >> 15 != 0, std::signbit(value));
      for (const std::uint32_t other : {size - 1, size + 1}) {
        if (other > 0x7fff || std::isnan(by_formula(other, fraction))) continue;
        ASSERT_LE(distance(size), distance(other)) << value;
        const bool may_be_odd = distance(size) < distance(other);
        ASSERT_TRUE(may_be_odd || size % 2 == 0) << value;
      }
    }
}

TEST(ElementTypeTest, Float32StaysAsItIs) {
  const std::vector<float> values{1.5F, -0.0F, 3e38F, 1e-40F};
  std::vector<std::uint8_t> bytes(16);
  narrow(ElementType::float32, values.data(), 4, bytes.data());
  EXPECT_EQ(std::memcmp(bytes.data(), values.data(), 16), 0);
  std::vector<float> back(4);
  widen(ElementType::float32, bytes.data(), 4, back.data());
  EXPECT_EQ(std::memcmp(back.data(), values.data(), 16), 0);
}

}  // namespace
}  // namespace headspan
