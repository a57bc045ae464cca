// Which heads together predict a head, and how well. The sources of a target are ranked by pairwise R²: only
// causal ones, heads of its own or an earlier layer, or all. The rule `pairwise` selects the first N of that
// ranking; `forward` N times adds the source of a pool that raises the joint in-sample R² most. Both report
// the joint regressions on the first 1 .. N of what they selected.
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

/// Which heads may be sources of a target: those that are there when it is computed (HeadLayout::is_causal),
/// or all.
enum class SourceScope { causal, all };

/// The rows of this rank's targets.
struct SelectionTable {
  Range targets;
  std::int64_t references = 0;       ///< N
  std::vector<int> sources;          ///< [targets.count, N] heads; -1 where there are fewer
  std::vector<double> r2;            ///< [targets.count, N] of the first 1 .. N sources
  std::vector<double> r2_heldout;    ///< [targets.count, N]; NaN without a held-out part
  std::vector<std::uint8_t> status;  ///< [targets.count, N] flags of Status
  std::vector<int> rank;             ///< [targets.count, N] regressors kept
  std::vector<double> pivot;         ///< [targets.count, N] smallest pivot kept
};

/// Returns the sources of `target` in a scope by falling in-sample R² of `pairs`, ties to the lower layer,
/// then the lower head; at most `count`. Leaves out pairs without an R².
std::vector<std::int64_t> ranked_sources(const HeadLayout& layout, const PairTable& pairs,
                                         std::int64_t target, std::int64_t count,
                                         SourceScope scope = SourceScope::causal);

/// Returns the tiles that `select` reads for this rank's targets with causal pools of `pool` and no more
/// references: those among each target and the best `pool` sources of its ranking. A tile may occur more than
/// once.
std::vector<Tile> selection_tiles(const HeadLayout& layout, const PairTable& pairs, std::int64_t pool);

/// Selects up to `references` sources in `scope` for every target; the rule `forward` chooses from the best
/// `pool` of the ranking, by calling `forward` if that is given (see choose_forward). Each rank fetches the
/// tiles that its targets need. If `forward` fails on one rank, AgreedError is thrown on all. Collective over
/// the Gram's grid.
SelectionTable select(const RegressionData& data, const PairTable& pairs, SelectionRule rule,
                      std::int64_t references, std::int64_t pool, const ForwardChoices& forward = {},
                      SourceScope scope = SourceScope::causal);

}  // namespace headspan
