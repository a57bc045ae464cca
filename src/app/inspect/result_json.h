// A result file in a few numbers, as JSON for programs.
#pragma once

#include "app/inspect/description.h"
#include "app/inspect/summary.h"

namespace headspan {

/// Returns the members of the summary under their names; a number that is NaN or unknown is null.
Values to_json(const ResultSummary& result);

}  // namespace headspan
