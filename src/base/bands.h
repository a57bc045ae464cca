// Bands: runs of neighbouring columns that a compressed KV cache stores with the same number of bits, and the
// bytes that they take.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

constexpr int kPlainBits = 16;  ///< means "as the model computes it"

/// A run of neighbouring columns of a stored block.
struct Band {
  std::int64_t columns = 0;
  int bits = kPlainBits;  ///< 2, 3, 4, 5, 6 or 8, or kPlainBits
  bool offset = false;    ///< quantised from a minimum and a step instead of from a largest magnitude
};

/// Returns the bytes that a band takes per token: packed codes with one scale of 16 bits (with an offset: two
/// numbers), or plain columns of 16 bits each.
constexpr std::int64_t band_bytes(const Band& band) {
  if (band.columns == 0) return 0;
  if (band.bits == kPlainBits) return 2 * band.columns;
  return (band.columns * band.bits + 7) / 8 + (band.offset ? 4 : 2);
}

}  // namespace headspan
