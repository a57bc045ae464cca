// Answers to requests: how likely a continuation is, and what the model itself would say next.
#pragma once

#include <string>

#include "app/evaluate/answer_file.h"
#include "app/run/cached_model.h"
#include "io/inputs/requests.h"

namespace headspan {

/// Answers the requests that `answers` does not have yet; the first request has the number `first` there.
/// `batch`: sequences at a time, or nothing for the program's choice. Throws AgreedError if the forward pass
/// overflows, and Stopped on a stop signal. Collective over the group of the model's processes, which is also
/// the communicator of `answers`.
void answer(const CachedModel& model, CacheKind kind, const std::vector<ScoredRequest>& requests,
            const std::optional<std::int64_t>& batch, std::size_t first, AnswerFile& answers);
void answer(const CachedModel& model, CacheKind kind, const std::vector<GenerationRequest>& requests,
            const std::optional<std::int64_t>& batch, std::size_t first, AnswerFile& answers);

}  // namespace headspan
