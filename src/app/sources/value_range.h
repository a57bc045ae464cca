// Whether the values behind Grams can be squared and summed. Where they cannot, statistics are NaN or 0, or
// LAPACK fails: they are refused, by stream, layer and head. Single coordinates that are too small are not:
// beside others they count as constant (stats/regression/regression_data.h).
#pragma once

#include "app/sources/unit_evidence.h"

namespace headspan {

// Each throws AgreedError that names the first layer and head of values that overflow, or are too large, or
// the stream of which all are too small, and says what to change. `path`: of what they were made from.
// Collective over comm or the grid of the Grams.

/// mean, squares: [D] of `tokens` tokens, replicated.
void check_value_range(const Comm& comm, const std::string& path, const StreamOrigin& origin,
                       const HeadLayout& layout, const FitRules& rules, std::int64_t tokens,
                       const std::vector<double>& mean, const std::vector<double>& squares);

void check_value_range(const std::string& path, const StreamOrigin& origin, const HeadLayout& layout,
                       const FitRules& rules, const StreamGrams& grams);

/// Of what attention does with keys and values. scale: [layers]; query: [layers, heads, d, d]; replicated.
void check_value_range(const Comm& comm, const std::string& path, Dtype forward_dtype, std::int64_t heads,
                       const std::vector<double>& scale, const std::vector<double>& query);

/// Of all that lies on the host.
void check_value_range(const Comm& comm, const std::string& path, const UnitEvidence& evidence);

}  // namespace headspan
