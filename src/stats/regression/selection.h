// Which heads together predict a head, and how well. For every target the causal sources are ranked by
// pairwise R²; `pairwise` takes the first N of that ranking, `forward` adds, N times, the source of a pool
// that raises the joint in-sample R² most. Both report the joint regression on the first 1..N of what they
// took.
#pragma once

#include "base/range.h"
#include "base/word_list.h"
#include "stats/regression/forward.h"
#include "stats/regression/pairwise.h"

namespace headspan {

enum class SelectionRule { pairwise, forward };

inline const WordList<SelectionRule>& selection_words() {
  static const WordList<SelectionRule> words{{"pairwise", SelectionRule::pairwise},
                                             {"forward", SelectionRule::forward}};
  return words;
}

/// Rows of the targets of this rank's slab.
struct SelectionTable {
  Range targets;
  std::int64_t references = 0;       ///< N
  std::vector<int> sources;          ///< [targets.count, N] head, -1 where there is none
  std::vector<double> r2;            ///< [targets.count, N] of the first 1..N sources
  std::vector<double> r2_heldout;    ///< likewise; NaN without a held-out part
  std::vector<std::uint8_t> status;  ///< likewise
  std::vector<int> rank;             ///< likewise: regressors kept
  std::vector<double> pivot;         ///< likewise: smallest kept pivot
};

/// The causal sources of `target` (layer not later, not itself) by falling in-sample R² of `pairs`, ties to
/// the lower layer, then the lower head; at most `most`. Pairs without an R² are left out.
std::vector<std::int64_t> ranked_sources(const HeadLayout& layout, const PairTable& pairs,
                                         std::int64_t target, std::int64_t most);

/// The tiles that `select` reads for this rank's targets, of pools of `pool` and as many references at most:
/// those among a target and the best of its ranking. A tile may come more than once.
std::vector<Tile> selection_tiles(const HeadLayout& layout, const PairTable& pairs, std::int64_t pool);

/// Selects up to `references` sources for every target; forward looks at the best `pool` of the ranking.
/// Targets are dealt out by slab and the tiles they need fetched; `forward`, where there is one, selects for
/// those of a rank that it can. Throws AgreedError on all ranks where that fails on one. Collective over the
/// Gram's grid.
SelectionTable select(const RegressionData& data, const PairTable& pairs, SelectionRule rule,
                      std::int64_t references, std::int64_t pool, const ForwardChoices& forward = {});

}  // namespace headspan
