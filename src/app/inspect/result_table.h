// Result files as people read them: several as one table per model, a row for each checkpoint beside the row
// of what means nothing; one alone with all its figures.
#pragma once

#include <string>
#include <vector>

#include "app/inspect/summary.h"

namespace headspan {

/// Lines, each ended. Results share a table when their figures can be compared: same model, tokens, sizes and
/// mode.
std::string format_results(std::vector<ResultSummary> results);

}  // namespace headspan
