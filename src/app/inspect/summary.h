// A result file in a few numbers: what it says of its unit, and for each stream how predictable the heads
// are, beside the null: the same numbers for heads that share nothing. Read by one process.
//
// A pair is causal if the source is another head of the target's layer or of an earlier one. A pair without
// an R², and a target without a source, are left out of every figure; a figure of nothing is NaN.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

/// Figures of the causal pairs of one stream. The best source of a target has the highest in-sample R²; the
/// held-out figures are of that same source, and NaN if nothing is held out.
struct PairFigures {
  double mean_best = 0;            ///< mean over targets of the in-sample R² from the best source
  double median_best = 0;          ///< median of the same
  double mean_best_heldout = 0;    ///< mean over targets of the held-out R² from the best source
  double median_best_heldout = 0;  ///< median of the same
  double mean_pair = 0;            ///< mean in-sample R² of all pairs
  double share_above_tenth = 0;    ///< share of pairs with an in-sample R² above 0.1
  double share_above_half = 0;     ///< share of pairs with an in-sample R² above 0.5
};

struct StreamSummary {
  std::string name;  ///< k, q, v or z
  std::int64_t layers = 0, heads = 0, head_size = 0;
  std::int64_t hidden_size = 0;  ///< 0: unknown
  std::int64_t n_fit = 0, n_heldout = 0;
  std::string capture;
  PairFigures found;
  PairFigures null;           ///< expected for random projections (stats/nulls/nulls.h)
  double adjusted_best = 0;   ///< adjusted R² of found.mean_best
  double effective_rank = 0;  ///< mean over heads
  std::int64_t flagged = 0;   ///< pairs, causal or not, with status 1, 2 or 8
  double noise_floor = 0;     ///< d / (n_fit - 1)
  double geometric_null = 0;  ///< d / m
};

/// Heads of one stream or model that predict those of another: the group cross/SOURCE-TARGET.
struct CrossSummary {
  std::string name;  ///< SOURCE-TARGET
  std::int64_t sources = 0, targets = 0;
  double mean_best = 0;          ///< mean over targets of the in-sample R² from the best of all sources
  double mean_best_heldout = 0;  ///< of these sources; NaN if nothing is held out
  double mean_layer_heldout =
      0;  ///< of two models: from the other model's layer of the same number; else NaN
};

struct ResultSummary {
  std::string path, schema;
  std::string model_name, model_type, checkpoint;
  bool random = false;  ///< weights drawn, not read
  std::string mode, tokens_path, source, date_created;
  std::int64_t step = -1;              ///< -1: unknown
  std::int64_t training_tokens = -1;   ///< -1: unknown
  std::vector<StreamSummary> streams;  ///< in the order k, q, v, z
  std::string reference;               ///< name of the reference model; empty: none
  std::vector<CrossSummary> cross;
};

/// Reads a result. Throws InputError, which names what the file lacks.
ResultSummary summarise_result(const std::string& path);

}  // namespace headspan
