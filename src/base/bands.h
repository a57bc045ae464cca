// Bands: how the columns that a KV cache stores of a token are cut into runs of equal bits, and the bytes
// they take.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

constexpr int kPlainBits = 16;  ///< stands for "as the model computes it"

/// A run of neighbouring columns of a stored block.
struct Band {
  std::int64_t columns = 0;
  int bits = kPlainBits;  ///< 2, 3, 4, 5, 6 or 8, or kPlainBits
  bool offset = false;    ///< of few bits: the least value and a step in place of a largest magnitude
};

/// Bytes of a token in a band: its codes and one number of 16 bits, or two; plain columns at 16 bits each.
constexpr std::int64_t band_bytes(const Band& band) {
  if (band.columns == 0) return 0;
  if (band.bits == kPlainBits) return 2 * band.columns;
  return (band.columns * band.bits + 7) / 8 + (band.offset ? 4 : 2);
}

}  // namespace headspan
