// Measures the bytes and the speed of a KV cache on a batch of prompts that is run and continued.
#pragma once

#include <cstdint>
#include <vector>

#include "app/run/cached_model.h"

namespace headspan {

/// Speeds are those of all ranks together, bytes those allocated by all ranks of a data-parallel row.
struct CacheSpeed {
  double prefill = 0, decode = 0;  ///< tokens/s
  double stored_bytes = 0;         ///< per token stored as the plan says
  double exact_bytes = 0;          ///< per token kept exactly; 0 if there is none
};

/// Runs the prompts, then continues each by `steps` tokens. The first `exact_tokens` tokens of each are those
/// that the cache keeps exactly. Every row gets the same prompts. Collective over the group.
CacheSpeed measure_speed(const CachedModel& model, CacheKind kind,
                         const std::vector<std::vector<std::int64_t>>& prompts, std::int64_t steps,
                         std::int64_t exact_tokens);

}  // namespace headspan
