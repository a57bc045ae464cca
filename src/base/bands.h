// Bands: runs of neighbouring columns that a compressed KV cache stores with the same number of bits, and the
// bytes that they take.
#pragma once

#include <cstdint>
#include <vector>

#include "base/word_list.h"

namespace headspan {

constexpr int kPlainBits = 16;             ///< means "as the model computes it"
constexpr int kMostNormalBits = 5;         ///< of Coding::normal
constexpr std::int64_t kGroupTokens = 32;  ///< of bands whose tokens share scales

/// What the codes of a band mean, k = 0 .. 2^b - 1. model/cache/record_format.h has the formulas.
enum class Coding {
  symmetric,  ///< half steps around zero, up to the largest magnitude
  range,      ///< steps from the smallest number to the largest
  gguf,       ///< whole steps around zero, as llama.cpp's q4_0 and q8_0
  gain,       ///< half steps around zero, all of a record's columns times one gain
  normal      ///< the levels at which a normal distribution loses least, times a gain
};

inline const WordList<Coding>& coding_words() {
  static const WordList<Coding> words{{"symmetric", Coding::symmetric},
                                      {"range", Coding::range},
                                      {"gguf", Coding::gguf},
                                      {"gain", Coding::gain},
                                      {"normal", Coding::normal}};
  return words;
}

/// A run of neighbouring columns of a stored block.
struct Band {
  std::int64_t columns = 0;
  int bits = kPlainBits;  ///< 1 to 8, or kPlainBits
  Coding coding = Coding::symmetric;
  std::int64_t tokens =
      1;                 ///< that share the scales of each column (range); 1: columns share those of a token
  double clip = 1;       ///< share of the range that the codes reach over (range)
  bool follows = false;  ///< has the gain of the record's first band, and none of its own (gain)
};

/// Returns the distance of evenly spaced levels at which a normal number of variance 1 loses least in `bits`
/// bits (Max, Quantizing for minimum distortion, 1960; 6 to 8 bits by the same conditions).
constexpr double normal_step(int bits) {
  constexpr double steps[] = {0, 1.5958, 0.9957, 0.5860, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308};
  return steps[bits];
}

/// Returns whether the bands of a record share a gain.
inline bool has_gain(const std::vector<Band>& bands) {
  return !bands.empty() && bands.front().coding == Coding::gain;
}

/// Returns how many numbers of 16 bits a coded band holds beside its codes.
constexpr std::int64_t scales_of(const Band& band) { return band.coding == Coding::range ? 2 : 1; }

/// Returns the bytes of scales that a coded band takes per token. Tokens that share them hold equal parts.
constexpr std::int64_t scale_bytes(const Band& band) {
  if (band.follows) return 0;
  const std::int64_t columns = band.tokens == 1 ? 1 : (band.columns + band.tokens - 1) / band.tokens;
  return 2 * scales_of(band) * columns;
}

/// Returns the bytes that a band takes per token: packed codes and their scales, or plain columns of 16 bits
/// each.
constexpr std::int64_t band_bytes(const Band& band) {
  if (band.columns == 0) return 0;
  if (band.bits == kPlainBits) return 2 * band.columns;
  return (band.columns * band.bits + 7) / 8 + scale_bytes(band);
}

}  // namespace headspan
