// SplitMix64 (Steele, Lea and Flood 2014): the seeded generator wherever a choice must be the same on every
// machine and in every language. Not a source of numbers for cryptography.
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

}  // namespace headspan
