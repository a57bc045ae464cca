// The rotary position embedding of a model's keys, as a codec knows it: how to take it away and to put it
// back. Coordinates i and i + r/2 of a head, i < r/2, are rotated by position * frequency_i and multiplied by
// a length; the others stay. For models in LibTorch see model/forward/rope.h.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

struct RotaryRule {
  std::vector<float> frequencies;  ///< [r/2], in radians per position
  double length = 1;
};

/// Cosines and sines of the tokens of a block: [tokens, r/2].
class RotaryTable {
 public:
  /// positions: of each token. Angles are products in float32, as models compute them.
  RotaryTable(const RotaryRule& rule, const std::vector<std::int64_t>& positions);

  /// Rotates heads x: [tokens, d], `leading` numbers from one token to the next, d >= r. Local.
  void rotate(float* x, std::int64_t leading) const;

  /// Undoes that. Local.
  void unrotate(float* x, std::int64_t leading) const;

 private:
  std::int64_t half_, tokens_;
  std::vector<double> cos_, sin_;  // of the angles
  double length_;
};

}  // namespace headspan
