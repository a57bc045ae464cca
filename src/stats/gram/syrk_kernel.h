// Sums of outer products in FP64: c += rows columns^T at and below a staircase of c, which for a symmetric
// matrix, whole or dealt out in blocks, is its diagonal. By kernels of our own, after Goto and van de Geijn
// (2008): OpenBLAS runs the kernels that the processor's name or the environment gives it, half as fast as
// others where that is wrong, and its products of the small rectangles along a diagonal are slow. Not a
// general product: the operands are panels (dist/matrix/panel_exchange.h).
//
// Each element is summed over 256 tokens at a time, in their order, by one thread: the same bits whatever the
// number of threads. Local; no MPI.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/process/cpu_dispatch.h"
#include "dist/matrix/large_array.h"
#include "dist/matrix/panel_exchange.h"

namespace headspan {

/// Column-major [rows, columns]. Column j takes part from row first_row[j] on; they do not decrease with j.
struct Staircase {
  double* values;
  std::int64_t leading, rows, columns;
  const std::int64_t* first_row;
};

/// Holds its workspace, 4 MiB at most and half a MiB for each thread, from call to call.
class SyrkKernel {
 public:
  /// Whether it is faster than BLAS: measured on one core of an EPYC, D = 4096, with AVX-512 102 GF/s against
  /// 94 (OpenBLAS 0.3.21), with AVX2 55 against 54.
  static bool is_faster_than_blas() { return best_lanes() > 4; }

  /// `lanes`: no more than best_lanes().
  explicit SyrkKernel(int lanes = best_lanes()) : lanes_(lanes) {}

  /// c[i, j] += sum_t panel.rows[i, t] panel.columns[offset(j), t] for i >= first_row[j]; nothing else of c
  /// is touched. The threads of this process share the work; the calling one runs `progress` between parts of
  /// it. Throws std::bad_alloc.
  void add(const PanelOperands<double>& panel, const Staircase& c, const std::function<void()>& progress);

 private:
  int lanes_;
  LargeArray<double> columns_;            // packed, of all threads
  std::vector<LargeArray<double>> rows_;  // packed, of each thread
};

}  // namespace headspan
