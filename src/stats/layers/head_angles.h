// How far two heads of a layer span the same directions: the squared cosines of the principal angles between
// their spans, from a Gram alone. For activations these are squared canonical correlations, for weights (rows
// of W in place of tokens, not centred) squared cosines between column spaces. With G_rr = L_r L_r^T:
//
//   sum of squared cosines = ||L_r^-1 G_rt L_t^-T||_F^2
#pragma once

#include <vector>

#include "stats/regression/regression_data.h"

namespace headspan {

/// By layer, on all ranks. NaN where a layer has fewer heads than others.
struct HeadAngles {
  std::int64_t layers = 0;
  std::int64_t heads = 0;       ///< of the largest layer
  std::vector<double> cosines;  ///< [layers, heads, heads] sum of squared cosines, symmetric
  std::vector<int> rank;        ///< [layers, heads] dimension of the span of each head; 0 where there is none
};

/// Compares the heads of each layer of `layout`. gram: [D, D], lower triangle of tiles; variance: [D], 0
/// leaves a coordinate out; tolerance: for pivots on the scale of unit diagonal. Collective over the grid of
/// `gram`.
HeadAngles head_angles(const Matrix& gram, const HeadLayout& layout, const std::vector<double>& variance,
                       double tolerance);

}  // namespace headspan
