// Vectors of a processor, by the vector extensions of GCC and Clang, for kernels that
// base/process/cpu_dispatch.h compiles for several instruction sets: their types, loads from any address, and
// permutations.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#include "base/process/cpu_dispatch.h"

namespace headspan::simd {

/// Vectors of Lanes 4-byte numbers, and vectors of smaller numbers in the same bytes; `Halves` has Lanes
/// 2-byte numbers.
template <int Lanes>
struct Vector {
  typedef float Floats __attribute__((vector_size(4 * Lanes)));  // `using` would lose the size
  typedef std::int32_t Ints __attribute__((vector_size(4 * Lanes)));
  typedef std::uint32_t Words __attribute__((vector_size(4 * Lanes)));
  typedef std::int16_t Shorts __attribute__((vector_size(4 * Lanes)));
  typedef std::uint16_t Codes __attribute__((vector_size(4 * Lanes)));
  typedef std::uint8_t Bytes __attribute__((vector_size(4 * Lanes)));
  typedef std::uint16_t Halves __attribute__((vector_size(2 * Lanes)));
};

template <int Lanes>
using Floats = typename Vector<Lanes>::Floats;
template <int Lanes>
using Ints = typename Vector<Lanes>::Ints;
template <int Lanes>
using Words = typename Vector<Lanes>::Words;
template <int Lanes>
using Codes = typename Vector<Lanes>::Codes;
template <int Lanes>
using Bytes = typename Vector<Lanes>::Bytes;

/// Loads a vector from any address, which may hold numbers of another type.
template <class To, class From>
HS_INLINED inline void load(const From* from, To& to) {
  std::memcpy(&to, from, sizeof to);
}

/// Sets element i of `to` to element Index[i] of a followed by b: one instruction, or the few that the
/// processor has.
template <class V, int... Index>
HS_INLINED inline void shuffle(const V& a, const V& b, std::integer_sequence<int, Index...> /*indices*/,
                               V& to) {
#ifdef __clang__
  to = __builtin_shufflevector(a, b, Index...);
#else
  using Indices = decltype(a == b);  // integers of the same size
  constexpr Indices kIndices = {Index...};
  to = __builtin_shuffle(a, b, kIndices);
#endif
}

/// Sets element i of `to` to element indices[i] of a followed by b.
template <class V, class I>
HS_INLINED inline void look_up(const V& a, const V& b, const I& indices, V& to) {
#ifdef __clang__
  constexpr int kLanes = sizeof(V) / sizeof(a[0]);
  for (int k = 0; k < kLanes; ++k) to[k] = indices[k] < kLanes ? a[indices[k]] : b[indices[k] - kLanes];
#else
  to = __builtin_shuffle(a, b, indices);
#endif
}

}  // namespace headspan::simd
