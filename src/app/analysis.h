// What a study asks of the Grams of one stream: all pairs, the selections, the heads on their own. Not files,
// not models.
#pragma once

#include <string>

#include "stats/head_summary.h"
#include "stats/selection.h"

namespace headspan {

/// What the job asks for.
struct AnalysisRequest {
  std::int64_t references = 5;
  std::int64_t pool = 16;
  bool pairwise = true;
  bool forward = true;
};

/// How the numbers of a stream came about: attributes of its group in the result.
struct StreamOrigin {
  std::string name;  ///< k, q or v
  std::string capture;
  std::string forward_dtype;
  std::string precision;
  std::int64_t skip_first = 0;
};

/// Tables of one stream; each rank holds the rows of its slab of targets.
struct StreamResult {
  StreamOrigin origin;
  HeadLayout layout;
  FitRules rules;
  PairTable pairs;
  std::optional<SelectionTable> pairwise;
  std::optional<SelectionTable> forward;
  HeadSummary heads;
};

/// Collective over the grid of the Grams.
StreamResult analyse(const RegressionData& data, const StreamOrigin& origin, const AnalysisRequest& request);

}  // namespace headspan
