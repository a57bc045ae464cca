// Bytes and speed of a KV cache, measured: a batch of sequences is filled and continued.
#pragma once

#include <cstdint>
#include <vector>

#include "app/run/cached_model.h"

namespace headspan {

/// Of one kind of cache; speeds are of all ranks together, bytes as allocated, of one copy of the model.
struct CacheSpeed {
  double prefill = 0, decode = 0;  ///< tokens/s
  double stored_bytes = 0;         ///< of a token that is stored as the plan says
  double exact_bytes = 0;          ///< of a token that is kept exactly; 0 where there is none
};

/// The prompts are run, then continued by `steps` tokens each; prompts: of every row the same. Collective
/// over the team.
CacheSpeed measure_speed(const CachedModel& model, CacheKind kind,
                         const std::vector<std::vector<std::int64_t>>& prompts, std::int64_t steps,
                         std::int64_t exact_tokens);

}  // namespace headspan
