// How far the heads of a layer span the same directions: for two heads the squared cosines of the principal
// angles between their spans, from a Gram alone. Of activations these are squared canonical correlations, of
// weights (the rows of W in place of tokens, not centred) the squared cosines between the column spaces.
//
//   sum = ||L_r^-1 G_rt L_t^-T||_F^2
#pragma once

#include <vector>

#include "stats/regression/regression_data.h"

namespace headspan {

/// For heads r and t of a layer, on all ranks. NaN where a layer has fewer heads.
struct HeadAngles {
  std::int64_t layers = 0;
  std::int64_t heads = 0;       ///< of the layer that has most
  std::vector<double> cosines;  ///< [layers, heads, heads] sum of the squared cosines, symmetric
  std::vector<int> rank;        ///< [layers, heads] dimension of the span of each head; 0 where there is none
};

/// gram: [D, D] of the heads of `layout`, lower triangle of tiles; `variance`: [D], 0 where a coordinate is
/// left out; `tolerance`: for pivots on the scale of unit diagonal. Collective over the grid of `gram`.
HeadAngles head_angles(const Matrix& gram, const HeadLayout& layout, const std::vector<double>& variance,
                       double tolerance);

}  // namespace headspan
