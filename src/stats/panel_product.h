// Adds the product of one panel to the lower triangle of tiles of a distributed Gram: C += rows * columns^T
// on the tiles that this rank owns. Panel sums always go into FP64. Local: the communication is
// PanelExchange's.
#pragma once

#include <functional>

#include "dist/panel_exchange.h"

namespace headspan {

/// How the product of a panel is formed (design: predict.precision).
///   float64    values and products in FP64
///   float32    values and products in FP32
///   split      z = hi + lo in bfloat16; hi hi + hi lo + lo hi, every term exact, summed in FP32
///   bfloat16   z rounded once to bfloat16; every term exact, summed in FP32
enum class Precision { float64, float32, split, bfloat16 };

/// z rounded to what `precision` multiplies: to nearest even, bfloat16 or the sum of two bfloat16.
float round_for_product(double z, Precision precision);

/// gram[i, j] += sum_t rows[i, t] columns[j, t] for the local tiles with global block row >= global block
/// column (on a 1x1 grid in FP64: for the elements on and below the diagonal). `progress` is called between
/// pieces.
void add_product(Matrix& gram, const PanelOperands<double>& panel, const std::function<void()>& progress);
void add_product(Matrix& gram, const PanelOperands<float>& panel, Precision precision,
                 const std::function<void()>& progress);

}  // namespace headspan
