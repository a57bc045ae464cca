// A result file in a few numbers: what it says of its unit, and for each stream how predictable the heads
// are, beside what the same numbers would be if heads had nothing in common. Read by one process.
//
// A pair is causal when the source's layer is not later than the target's and it is another head. A pair
// without an R², and a target without a source, are left out of every figure; a figure of nothing is NaN.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

/// Over the causal pairs of one stream.
struct PairFigures {
  double mean_best = 0;          ///< over targets, of the best in-sample R²
  double median_best = 0;        ///< likewise
  double mean_best_heldout = 0;  ///< of the held-out R² from that same source; NaN where nothing is held out
  double median_best_heldout = 0;  ///< likewise
  double mean_pair = 0;            ///< of the in-sample R² of all pairs
  double share_above_tenth = 0;    ///< share of pairs with an in-sample R² above 0.1
  double share_above_half = 0;     ///< above 0.5
};

struct StreamSummary {
  std::string name;  ///< k, q or v
  std::int64_t layers = 0, heads = 0, head_size = 0;
  std::int64_t hidden_size = 0;  ///< 0: unknown
  std::int64_t n_fit = 0, n_heldout = 0;
  std::string capture;
  PairFigures found;
  PairFigures null;           ///< of random projections (stats/nulls/nulls.h)
  double adjusted_best = 0;   ///< adjusted R² of found.mean_best
  double effective_rank = 0;  ///< mean over heads
  std::int64_t flagged = 0;   ///< pairs, causal or not, with status 1, 2 or 8
  double noise_floor = 0;     ///< d / (n_fit - 1)
  double geometric_null = 0;  ///< d / m
};

struct ResultSummary {
  std::string path;
  std::string model_name, model_type, checkpoint;
  bool random = false;  ///< weights drawn, not read
  std::string mode, tokens_path, source, date_created;
  std::int64_t step = -1;              ///< -1: unknown
  std::int64_t training_tokens = -1;   ///< likewise
  std::vector<StreamSummary> streams;  ///< in the order k, q, v
};

/// Throws InputError naming what the file lacks.
ResultSummary summarise_result(const std::string& path);

}  // namespace headspan
