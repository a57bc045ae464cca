// Stored columns of few bits as kernels read them. model/cache/record_format.h writes them.
#pragma once

#include <cstdint>
#include <type_traits>

#include "base/process/cpu_dispatch.h"

namespace headspan {

/// Rows of codes of `bits` bits (1 to 8) laid end to end, the lowest bit first; rows `stride` bytes apart. Up
/// to 7 bytes after the last code are read.
struct CodedRows {
  const std::uint8_t* codes;
  std::int64_t stride;
  std::int64_t rows;
  int bits;
  std::int64_t count;  ///< codes per row
};

constexpr std::int64_t kQuantizedTokens = 64;
constexpr std::int64_t kCacheLine = 64;  ///< bytes

/// Columns of at most kQuantizedTokens tokens, in sections of equal bits. In a section of b bits
/// z[t, c] = middle[t] + (code[t, c] - 2^(b - 1)) * step[t].
struct QuantizedBlock {
  static constexpr int kMostSections = 8;

  CodedRows sections[kMostSections];  ///< of the same rows; all but the last have whole groups of 8 columns
  int count = 0;                      ///< sections
  float middle[kQuantizedTokens];     ///< after the last token any finite value, in `step` too
  float step[kQuantizedTokens];
  const std::uint8_t* next = nullptr;  ///< cache lines that are read afterwards: kernels prefetch them
  std::int64_t next_lines = 0;

  HS_INLINED std::int64_t rows() const { return sections[0].rows; }
  HS_INLINED std::int64_t columns() const {
    std::int64_t sum = 0;
    for (int s = 0; s < count; ++s) sum += sections[s].count;
    return sum;
  }
};

/// Calls use(constant) with the number of bits as a compile-time constant.
template <class Use>
HS_INLINED inline void with_bits(int bits, const Use& use) {
  switch (bits) {
    case 1:
      return use(std::integral_constant<int, 1>());
    case 2:
      return use(std::integral_constant<int, 2>());
    case 3:
      return use(std::integral_constant<int, 3>());
    case 4:
      return use(std::integral_constant<int, 4>());
    case 5:
      return use(std::integral_constant<int, 5>());
    case 6:
      return use(std::integral_constant<int, 6>());
    case 7:
      return use(std::integral_constant<int, 7>());
    default:
      return use(std::integral_constant<int, 8>());
  }
}

}  // namespace headspan
