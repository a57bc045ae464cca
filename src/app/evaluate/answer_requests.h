// Answers to requests: how likely a continuation is, and what the model itself would say next.
#pragma once

#include <string>

#include "app/evaluate/answer_file.h"
#include "app/run/cached_model.h"
#include "io/inputs/requests.h"

namespace headspan {

/// Answers the requests that `answers` does not have; there the first of them has the number `first`.
/// `batch`: sequences at a time, or nothing for the program's choice. Collective over the team, whose group
/// `answers` is of.
void answer(const CachedModel& model, CacheKind kind, const std::vector<ScoredRequest>& requests,
            const std::optional<std::int64_t>& batch, std::size_t first, AnswerFile& answers);
void answer(const CachedModel& model, CacheKind kind, const std::vector<GenerationRequest>& requests,
            const std::optional<std::int64_t>& batch, std::size_t first, AnswerFile& answers);

}  // namespace headspan
