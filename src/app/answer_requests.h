// Answers to requests: how likely a continuation is, and what the model itself would say next.
#pragma once

#include <string>

#include "app/cached_model.h"
#include "io/requests.h"

namespace headspan {

/// The lines of answers, in the order of the requests, on rank 0 of the group. `batch`: sequences at a time,
/// or nothing for the program's choice. Collective over the team.
std::string answer(const CachedModel& model, CacheKind kind, const std::vector<ScoredRequest>& requests,
                   const std::optional<std::int64_t>& batch);
std::string answer(const CachedModel& model, CacheKind kind, const std::vector<GenerationRequest>& requests,
                   const std::optional<std::int64_t>& batch);

}  // namespace headspan
