// Sums of outer products, as SyrkKernel forms them, in 8-bit integers: Ozaki's scheme (Ozaki et al., Numer.
// Algorithms 59, 2012) for processors that multiply bytes several times as fast as numbers in FP64. In each
// chunk of tokens a row or column is rounded to multiples of its largest value / (127 * 2^16), 23 bits and
// the sign, and split into three digits,
//
//   x / unit = 2^16 a + 2^8 b + c,   -128 <= a, b, c <= 127
//
// of which six products are summed in 32 bits without rounding, by powers of two:
//
//   2^32 a a' + 2^24 (a b' + b a') + 2^16 (a c' + b b' + c a')
//
// Near the diagonal, in the covariance of a head, which fits invert, and where a few values are far larger
// than the others, 2^8 (b c' + c b') is added, and c c' on the diagonal, where its mean is not zero.
// Elsewhere what is left out has mean zero and is 2^-23 of the largest product at most. For Precision::split.
// GPUs form eight products everywhere (device/integer_product.h). Local; no MPI.
#pragma once

#include <cstdint>
#include <functional>

#include "base/process/cpu_dispatch.h"
#include "dist/matrix/large_array.h"
#include "dist/matrix/panel_exchange.h"
#include "stats/gram/staircase_product.h"

namespace headspan {

/// Keeps its workspace, at most 17 MiB and 1 MiB per thread, from call to call.
class IntegerKernel {
 public:
  /// `fused`: by AVX-512's fused products of bytes, which the processor must have; otherwise by plain loops,
  /// which give the same bits and are slow.
  explicit IntegerKernel(bool fused = has_vnni()) : product_(Packing{fused, 0}) {}

  /// See SyrkKernel::add. The first `near` rows below the staircase have eight products. A row or column
  /// with a value that is not finite has sums that are not.
  template <class T>
  void add(const PanelOperands<T>& panel, const PanelOrigin& origin, const Staircase& c, std::int64_t near,
           const std::function<void()>& progress);

 private:
  /// Rows or columns as digits, in tiles.
  struct Digits {
    LargeArray<std::uint8_t> bytes;   ///< by tile: [tokens / 4, 3, tile, 4]
    LargeArray<double> units;         ///< by row or column; those of rows times 2^16
    LargeArray<double> peaks;         ///< by tile: the largest value over the root mean square, at most
    LargeArray<std::int32_t> starts;  ///< of columns, by tile: [3, tile], where sums start
  };
  struct Packing {
    using Packed = Digits;

    bool fused;
    std::int64_t near;

    void reserve(Digits& digits, std::int64_t count, std::int64_t tokens) const;
    template <class T>
    void pack_columns(const Chunk<T>& chunk, std::int64_t first, Digits& to) const;
    template <class T>
    void pack_rows(const Strip<T>& rows, Digits& to) const;
    void add(const Digits& rows, const Digits& columns, const ResultBlock& block) const;
  };

  StaircaseProduct<Packing> product_;
};

}  // namespace headspan
