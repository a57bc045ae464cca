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
/// The products of an FP32 panel are summed in FP32 for some hundred tokens with a kernel, and for the whole
/// panel without.
template <class T>
void add_product(Matrix& gram, const PanelOperands<T>& panel, SyrkKernel<T>& kernel,
                 const std::function<void()>& progress);

/// The same by BLAS. The caller keeps `workspace` from call to call; it holds the panel's columns if they are
/// scattered in it.
void add_product(Matrix& gram, const PanelOperands<double>& panel, LargeArray<double>& workspace,
                 const std::function<void()>& progress);

/// The same by BLAS or oneDNN. `workspace`: at most 64 MiB.
void add_product(Matrix& gram, const PanelOperands<float>& panel, FloatGemm& gemm,
                 LargeArray<float>& workspace, const std::function<void()>& progress);

}  // namespace headspan
