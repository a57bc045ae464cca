// Ordinary least squares with intercept on the raw activations of one process: slow, obvious, and independent
// of the Gram route (LAPACK's dgelsd, an SVD of the centred data). What the statistics are held against.
#pragma once

#include <cstdint>
#include <vector>

#include "support/synthetic.h"

namespace headspan {

struct OlsScore {
  double r2;           ///< uniform average over the target's coordinates with variance
  double r2_weighted;  ///< variance-weighted
  double r2_heldout;   ///< NaN without held-out part
};

/// Regresses head `target` on the heads `sources`, of d columns each. Minimum-norm maps where the sources are
/// rank deficient. A coordinate whose SST is 0 is left out. `heldout` may be null.
OlsScore reference_ols(const Activations& fit, const Activations* heldout, std::int64_t d,
                       const std::vector<std::int64_t>& sources, std::int64_t target);

}  // namespace headspan
