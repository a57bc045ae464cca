// R² of every head from every other head of a stream, or of every head of one stream from every head of
// another, in-sample and held-out, in one pass over the distributed Gram. Each rank factors its diagonal
// tiles and sends the factors along its process row and column. A stored tile (i, j) then serves both
// directions, i from j and j from i. Not joint regressions on several heads (stats/regression/selection.h).
#pragma once

#include "base/range.h"
#include "stats/regression/pair_sums.h"

namespace headspan {

/// The rows of this rank's targets, `HeadLayout::targets_of`. NaN and kNotComputed where the layout has no
/// pair.
struct PairTable {
  Range targets;
  std::vector<double> r2;            ///< [targets.count, heads], row-major: target, source
  std::vector<double> r2_weighted;   ///< [targets.count, heads]
  std::vector<double> r2_heldout;    ///< [targets.count, heads]; NaN without a held-out part
  std::vector<std::uint8_t> status;  ///< [targets.count, heads] flags of Status
  std::vector<int> rank;             ///< [heads] regressors kept of each source, on all ranks
  std::vector<double> pivot;         ///< [heads] smallest pivot kept of each source, on all ranks
};

/// Fits all ordered pairs. `sums` multiplies the tiles of a rank; if it fails on one rank, AgreedError is
/// thrown on all. Collective over the Gram's grid.
PairTable all_pairs(const RegressionData& data, const PairSums& sums = host_pair_sums);

}  // namespace headspan
