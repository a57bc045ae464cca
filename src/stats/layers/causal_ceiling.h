// How well all earlier heads together predict a head, in the natural order of heads (layer by layer): the
// most that causal references can reach that lie before it. One right-looking block Cholesky of the whole
// Gram, head by head:
//
//   SSE of head t = diag of what is left of G_tt,   X = G_(t+1.., t) U_t,   G_(t+1.., t+1..) -= X X^T,
//
// with the guarded factor of what is left of G_tt, U_t = D P L^-T: coordinates that earlier heads explain up
// to rounding are passed over, so that dependent heads do no harm.
#pragma once

#include "stats/regression/regression_data.h"

namespace headspan {

/// The in-sample R² of each head from all earlier ones, on all ranks: [heads]. NaN for head 0, and from the
/// first head on whose earlier ones have p >= n - 1 coordinates. Destroys the matrix of `data.fit`.
/// Collective over its grid.
std::vector<double> causal_ceiling(RegressionData& data);

}  // namespace headspan
