// Checks that the values that Grams are made from can be squared and summed. Otherwise statistics would be
// NaN or 0, or LAPACK would fail. A single coordinate that is too small is accepted: beside larger ones it
// counts as constant (stats/regression/regression_data.h).
//
// All throw AgreedError, which names the first layer and head of values that overflow or are too large, or
// the stream whose values are all too small, and says what to change. `path` is what the values were made
// from. All are collective over the ranks of the Grams.
#pragma once

#include "app/sources/unit_evidence.h"

namespace headspan {

/// Checks one part of a stream. mean: [D]; squares: [D], the diagonal of its Gram over `tokens` tokens; both
/// replicated.
void check_value_range(const std::string& path, const StreamEvidence& stream, const Comm& comm,
                       std::int64_t tokens, const std::vector<double>& mean,
                       const std::vector<double>& squares);

/// Checks the Grams of a stream in host memory.
void check_value_range(const std::string& path, const StreamEvidence& stream);

/// Checks all of a unit that is in host memory.
void check_value_range(const std::string& path, const UnitEvidence& evidence, const Comm& comm);

/// Checks sums over the tokens of a forward. sums: [layers, heads, any size], replicated; `stream`: of what.
void check_head_sums(const std::string& path, const std::string& stream, Dtype forward_dtype,
                     std::int64_t layers, std::int64_t heads, const std::vector<double>& sums,
                     const Comm& comm);

/// Checks what attention does with keys and values. scale: [layers]; query: [layers, heads, d, d]; both
/// replicated.
void check_attention_range(const std::string& path, Dtype forward_dtype, std::int64_t heads,
                           const std::vector<double>& scale, const std::vector<double>& query,
                           const Comm& comm);

}  // namespace headspan
