// Adds the product of one panel to the lower triangle of tiles of a distributed Gram: C += rows * columns^T
// on the tiles that this rank owns. Panel sums always go into FP64. Local: the communication is
// PanelExchange's.
#pragma once

#include <functional>

#include "dist/large_array.h"
#include "dist/panel_exchange.h"
#include "stats/float_gemm.h"

namespace headspan {

/// gram[i, j] += sum_t rows[i, t] columns[j, t] for the local tiles with global block row >= global block
/// column (on a 1x1 grid: for the elements on and below the diagonal). `progress` is called between pieces.
/// In FP32 the panel is summed in FP32. `block`: workspace of 64 MiB at most, kept from call to call.
void add_product(Matrix& gram, const PanelOperands<double>& panel, const std::function<void()>& progress);
void add_product(Matrix& gram, const PanelOperands<float>& panel, FloatGemm& gemm, LargeArray<float>& block,
                 const std::function<void()>& progress);

}  // namespace headspan
