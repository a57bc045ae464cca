// Which heads are kept and which are predicted from which, by each algorithm that drops whole heads.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/job/job.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// By stream and head: the references of a target in the order of choice; empty for a kept head.
using StreamReferences = std::map<Stream, std::vector<std::vector<std::int64_t>>>;

/// data: of each stream that is compressed; metrics: [heads, d, d] of each. The same on every rank. Throws
/// AgreedError where the budget is out of reach. Collective over the Grams' grid.
StreamReferences choose_references(const Job::Compress& rule, const std::map<Stream, RegressionData>& data,
                                   const std::map<Stream, std::vector<double>>& metrics);

}  // namespace headspan
