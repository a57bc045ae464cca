#include "io/archive/element_type.h"

#include <cstring>

namespace headspan {
namespace {

std::uint32_t bits_of(float x) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof bits);
  return bits;
}

float float_of(std::uint32_t bits) {
  float x = 0;
  std::memcpy(&x, &bits, sizeof x);
  return x;
}

constexpr float kHalfSubnormal = 0x1p-24F;  // the smallest number of float16
constexpr std::uint32_t kHalfInfinity = 0x7c00;

float half_to_float(std::uint32_t half) {
  const std::uint32_t sign = (half & 0x8000) << 16, rest = half & 0x7fff;
  if (rest >= kHalfInfinity) return float_of(sign | 0x7f800000 | (rest & 0x3ff) << 13);
  if (rest < 0x400) return float_of(sign | bits_of(static_cast<float>(rest) * kHalfSubnormal));
  return float_of(sign | ((rest << 13) + ((127 - 15) << 23)));
}

std::uint32_t float_to_half(float x) {
  const std::uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return sign | 0x7e00;                 // NaN
  if (rest >= bits_of(65520.0F)) return sign | kHalfInfinity;  // rounds to 2^16
  if (rest < bits_of(0x1p-14F))                                // subnormal: the sum rounds
    return sign | (bits_of(float_of(rest) + 0.5F) - bits_of(0.5F));
  const std::uint32_t even = rest >> 13 & 1;
  return sign | ((rest - ((127 - 15) << 23) + 0xfff + even) >> 13);
}

std::uint32_t float_to_bfloat(float x) {
  const std::uint32_t bits = bits_of(x);
  if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;  // NaN
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

std::uint32_t load_16(const std::uint8_t* bytes) {
  return static_cast<std::uint32_t>(bytes[0] | bytes[1] << 8);
}

void store_16(std::uint32_t number, std::uint8_t* bytes) {
  bytes[0] = static_cast<std::uint8_t>(number);
  bytes[1] = static_cast<std::uint8_t>(number >> 8);
}

}  // namespace

void widen(ElementType type, const std::uint8_t* bytes, std::int64_t count, float* values) {
  for (std::int64_t i = 0; i < count; ++i) switch (type) {
      case ElementType::float16:
        values[i] = half_to_float(load_16(bytes + 2 * i));
        break;
      case ElementType::bfloat16:
        values[i] = float_of(load_16(bytes + 2 * i) << 16);
        break;
      case ElementType::float32:
        values[i] = float_of(load_16(bytes + 4 * i) | load_16(bytes + 4 * i + 2) << 16);
        break;
    }
}

void narrow(ElementType type, const float* values, std::int64_t count, std::uint8_t* bytes) {
  for (std::int64_t i = 0; i < count; ++i) switch (type) {
      case ElementType::float16:
        store_16(float_to_half(values[i]), bytes + 2 * i);
        break;
      case ElementType::bfloat16:
        store_16(float_to_bfloat(values[i]), bytes + 2 * i);
        break;
      case ElementType::float32:
        store_16(bits_of(values[i]), bytes + 4 * i);
        store_16(bits_of(values[i]) >> 16, bytes + 4 * i + 2);
        break;
    }
}

}  // namespace headspan
