// The innermost loop of a matrix product: a tile of the result is summed in registers, after Goto and van de
// Geijn, ACM TOMS 34 (2008). What surrounds the loop, cutting, packing and sharing out, is with the products
// that use it: the Gram's (stats/gram/syrk_kernel.h) and those of linear layers (linear_kernel.h). Compiled
// for several processors by base/process/cpu_dispatch.h.
#pragma once

#include <cstdint>

#include "base/process/cpu_dispatch.h"

namespace headspan {

/// The shape of a tile. P: float or double, of the products. Of AVX-512's 32 vectors 24 hold sums; of the 16
/// of AVX2 and SSE, 12 and 8.
template <int Lanes, class P>
struct RegisterTile {
  static constexpr int kLanes = Lanes * 4 / static_cast<int>(sizeof(P));
  static constexpr int kVectors = Lanes == 4 ? 2 : 3;
  static constexpr int kRows = kVectors * kLanes;
  static constexpr int kColumns = Lanes == 16 ? 8 : 4;
  typedef P Values __attribute__((vector_size(4 * Lanes)));  // `using` would lose the size
  typedef Values Sums[kColumns][kVectors];
};

constexpr std::int64_t kTileRowStep = 48;  ///< a multiple of every tile's rows

/// Fetches what a tile needs of its operands some terms later. The processor's own prefetching falls behind
/// if a term takes a dozen cycles.
template <class Shape, class P>
HS_INLINED inline void prefetch_terms(const P* a, const P* b) {
  constexpr int kTerms = 16;
#pragma GCC unroll 3
  for (int r = 0; r < Shape::kVectors; ++r) __builtin_prefetch(a + kTerms * Shape::kRows + r * Shape::kLanes);
  __builtin_prefetch(b + kTerms * Shape::kColumns);
}

/// Sets sums = a b^T. a: [kRows, terms] and b: [kColumns, terms], column-major without gaps, a aligned to a
/// vector. The terms of each sum are added in order.
template <int Lanes, class P>
HS_INLINED inline void sum_tile(const P* a, const P* b, std::int64_t terms,
                                typename RegisterTile<Lanes, P>::Sums& sums) {
  using Shape = RegisterTile<Lanes, P>;
  using Values = typename Shape::Values;
#pragma GCC unroll 8
  for (int j = 0; j < Shape::kColumns; ++j)
#pragma GCC unroll 3
    for (int r = 0; r < Shape::kVectors; ++r) sums[j][r] = Values{};
  for (std::int64_t t = 0; t < terms; ++t, a += Shape::kRows, b += Shape::kColumns) {
    if constexpr (Lanes == 16) prefetch_terms<Shape>(a, b);
    Values x[Shape::kVectors];
#pragma GCC unroll 3
    for (int r = 0; r < Shape::kVectors; ++r) x[r] = *reinterpret_cast<const Values*>(a + r * Shape::kLanes);
#pragma GCC unroll 8
    for (int j = 0; j < Shape::kColumns; ++j) {
      const Values y = b[j] - Values{};
#pragma GCC unroll 3
      for (int r = 0; r < Shape::kVectors; ++r) sums[j][r] += x[r] * y;
    }
  }
}

/// Fetches the part of the result that a tile is written to, [kRows, kColumns], columns `leading` apart.
template <class Shape, class C>
HS_INLINED inline void prefetch_result(const C* c, std::int64_t leading) {
  constexpr int kPerLine = 64 / static_cast<int>(sizeof(C));
#pragma GCC unroll 8
  for (int j = 0; j < Shape::kColumns; ++j)
#pragma GCC unroll 6
    for (int i = 0; i < Shape::kRows; i += kPerLine) __builtin_prefetch(c + j * leading + i, 1);
}

}  // namespace headspan
