// SplitMix64 (Steele, Lea and Flood 2014): the seeded generator of every choice that must be the same on all
// machines and in all languages. Not for cryptography.
#pragma once

#include <cstdint>

namespace headspan {

class SplitMix64 {
 public:
  explicit SplitMix64(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    state_ += 0x9e3779b97f4a7c15u;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }

 private:
  std::uint64_t state_;
};

/// Returns the uniform number in [0, 1) of a token of a sequence: the upper 53 bits of output 2^32 sequence +
/// token of SplitMix64(seed).
inline double token_uniform(std::int64_t seed, std::int64_t sequence, std::int64_t token) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;  // added to the state per output
  const std::uint64_t output =
      (static_cast<std::uint64_t>(sequence) << 32) + static_cast<std::uint64_t>(token);
  return static_cast<double>(SplitMix64(static_cast<std::uint64_t>(seed) + output * kStep).next() >> 11) *
         0x1p-53;
}

}  // namespace headspan
