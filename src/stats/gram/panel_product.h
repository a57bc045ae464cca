// Adds the product of one panel to the lower triangle of tiles of a distributed Gram: C += rows * columns^T
// on the tiles that this rank owns. Panel sums always go into FP64. Local: the communication is
// PanelExchange's.
#pragma once

#include <functional>

#include "dist/matrix/large_array.h"
#include "dist/matrix/panel_exchange.h"
#include "stats/gram/float_gemm.h"
#include "stats/gram/syrk_kernel.h"

namespace headspan {

/// gram[i, j] += sum_t rows[i, t] columns[j, t] for the local elements on and below the diagonal of the
/// whole; what lies above it in tiles on the diagonal has no meaning afterwards. `progress` is called between
/// pieces. `sums`: null for BLAS. In FP32 the panel is summed in FP32. `workspace` is kept from call to call:
/// nothing with `sums`; for BLAS the panel's columns where they are not neighbours in it; in FP32 64 MiB at
/// most.
void add_product(Matrix& gram, const PanelOperands<double>& panel, SyrkKernel* sums,
                 LargeArray<double>& workspace, const std::function<void()>& progress);
void add_product(Matrix& gram, const PanelOperands<float>& panel, FloatGemm& gemm,
                 LargeArray<float>& workspace, const std::function<void()>& progress);

}  // namespace headspan
