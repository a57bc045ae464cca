// Sums of outer products: c += rows columns^T, c in FP64, on and below a staircase of c. For a symmetric
// matrix, whole or block-cyclic, the staircase is its diagonal. The kernels follow Goto and van de Geijn, ACM
// TOMS 34 (2008). They replace OpenBLAS for three reasons: they subtract the mean while they pack, and need
// no shifted copy of the activations; OpenBLAS picks kernels by the processor's name or the environment, and
// runs at half the speed if the choice is wrong; and its products of the small rectangles along a diagonal
// are slow. Not a general product: the operands are panels (dist/matrix/panel_exchange.h).
//
// P is the type of the products, double or float; T that of the activations. Each element of c is summed in
// the order of the tokens: at most 256 at a time in FP64, or 768 in FP32, which are then added to c. Local;
// no MPI.
#pragma once

#include <cstdint>
#include <functional>

#include "base/process/cpu_dispatch.h"
#include "dist/matrix/large_array.h"
#include "dist/matrix/panel_exchange.h"
#include "stats/gram/panel_values.h"
#include "stats/gram/staircase_product.h"

namespace headspan {

/// Keeps its workspace, at most 12 MiB and 3/4 MiB per thread, from call to call.
template <class P>
class SyrkKernel {
 public:
  /// `precision`: one that multiplies P. `lanes`: at most best_lanes().
  explicit SyrkKernel(Precision precision, int lanes = best_lanes()) : product_({precision, lanes}) {}

  /// Adds c[i, j] += sum_t x[i, t] y[j, t] for i >= first_row[j], where x = panel.rows[i, t] -
  /// origin.rows[i] and y = panel.columns[offset(j), t] - origin.columns[j], rounded as the precision says;
  /// leaves other elements of c alone. The threads of this process share the work; the calling one runs
  /// `progress` between chunks of it. Throws std::bad_alloc.
  template <class T>
  void add(const PanelOperands<T>& panel, const PanelOrigin& origin, const Staircase& c,
           const std::function<void()>& progress);

 private:
  struct Packing {
    using Packed = LargeArray<P>;

    Precision precision;
    int lanes;

    void reserve(Packed& packed, std::int64_t count, std::int64_t tokens) const {
      packed.reserve(count * tokens);
    }
    template <class T>
    void pack_columns(const Chunk<T>& chunk, std::int64_t first, Packed& to) const;
    template <class T>
    void pack_rows(const Strip<T>& rows, Packed& to) const;
    void add(const Packed& rows, const Packed& columns, const ResultBlock& block) const;
  };

  StaircaseProduct<Packing> product_;
};

}  // namespace headspan
