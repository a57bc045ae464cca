// Result files as people read them: several as one table per model, with a row for each checkpoint and one
// for the null; a single one with all its figures.
#pragma once

#include <string>
#include <vector>

#include "app/inspect/summary.h"

namespace headspan {

/// Returns complete lines. Results share a table if their figures can be compared: same model, tokens, sizes
/// and mode.
std::string format_results(std::vector<ResultSummary> results);

}  // namespace headspan
