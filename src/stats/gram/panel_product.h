// Adds the product of one panel to the lower triangle of tiles of a distributed Gram: C += rows columns^T on
// the tiles that this rank owns, in FP64 whatever the panel's type. Local: PanelExchange communicates.
#pragma once

#include <functional>

#include "dist/matrix/large_array.h"
#include "dist/matrix/panel_exchange.h"
#include "stats/gram/float_gemm.h"
#include "stats/gram/syrk_kernel.h"

namespace headspan {

/// Adds gram[i, j] += sum_t rows[i, t] columns[j, t] for the local elements on and below the diagonal of the
/// whole Gram; what lies above it in diagonal tiles is undefined afterwards. Calls `progress` between blocks.
/// An FP64 panel is multiplied by `kernel`, or by BLAS if that is null; an FP32 panel is summed in FP32. The
/// caller keeps `workspace` from call to call. It holds nothing with `kernel`, the panel's columns for BLAS
/// if they are scattered in it, and at most 64 MiB for FP32.
void add_product(Matrix& gram, const PanelOperands<double>& panel, SyrkKernel* kernel,
                 LargeArray<double>& workspace, const std::function<void()>& progress);
void add_product(Matrix& gram, const PanelOperands<float>& panel, FloatGemm& gemm,
                 LargeArray<float>& workspace, const std::function<void()>& progress);

}  // namespace headspan
