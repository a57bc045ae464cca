// R² of every head from every other head of a stream, in-sample and held-out, in one pass over the
// distributed Gram: the diagonal tiles are factored where they live, each factor goes to the process row and
// column of its tile, and a stored tile (i, j) then serves both directions, i from j and j from i.
#pragma once

#include "base/range.h"
#include "stats/regression/pair_sums.h"

namespace headspan {

/// The rows of the targets of this rank's slab (`range_of(heads, ranks, rank)`); NaN and kNotComputed on the
/// diagonal.
struct PairTable {
  Range targets;
  std::vector<double> r2;            ///< [targets.count, heads], row-major: target, source
  std::vector<double> r2_weighted;   ///< likewise
  std::vector<double> r2_heldout;    ///< likewise; NaN without a held-out part
  std::vector<std::uint8_t> status;  ///< likewise, flags of Status
  std::vector<int> rank;             ///< [heads] regressors kept of each source, on all ranks
  std::vector<double> pivot;         ///< [heads] smallest kept pivot of each source, on all ranks
};

/// All ordered pairs; `sums` says where each rank multiplies its tiles. Throws AgreedError on all ranks where
/// that fails on one. Collective over the Gram's grid.
PairTable all_pairs(const RegressionData& data, const PairSums& sums = host_pair_sums);

}  // namespace headspan
