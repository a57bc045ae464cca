// How well all earlier heads together predict a head, in layer-major order: an upper bound for any references
// among them. One right-looking block Cholesky of the whole Gram, head by head:
//
//   SSE of head t = diag(G_tt),   X = G_(t+1.., t) U_t,   G_(t+1.., t+1..) -= X X^T,
//
// where G_tt is what the earlier steps have left of it, and U_t = D P L^-T comes from its factor with the
// rank guard of every regression (stats/regression/regression.h): coordinates that earlier heads explain up
// to rounding are skipped.
#pragma once

#include "stats/regression/regression_data.h"

namespace headspan {

/// Returns the in-sample R² of each head from all earlier ones, on all ranks: [heads]. NaN for head 0, and
/// from the first head on whose predecessors have p >= n - 1 coordinates. Destroys the matrix of `data.fit`.
/// Collective over its grid.
std::vector<double> causal_ceiling(RegressionData& data);

}  // namespace headspan
