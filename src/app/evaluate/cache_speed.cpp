#include "app/evaluate/cache_speed.h"

#include <algorithm>

#include "base/clock.h"
#include "base/progress.h"
#include "model/forward/inference.h"

namespace headspan {

CacheSpeed measure_speed(const CachedModel& model, CacheKind kind,
                         const std::vector<std::vector<std::int64_t>>& prompts, std::int64_t steps,
                         std::int64_t exact_tokens) {
  const Comm& group = model.processes().group();
  const auto cache = model.make_cache(kind, prompts.size());
  double tokens = 0, exact = 0;
  for (const auto& prompt : prompts) {
    tokens += static_cast<double>(prompt.size());
    exact += static_cast<double>(std::min(exact_tokens, static_cast<std::int64_t>(prompt.size())));
  }
  const auto rows = static_cast<double>(model.processes().data().size());
  group.barrier();
  double start = steady_seconds();
  std::vector<std::int64_t> next = next_tokens(model.model(), prompts, *cache);
  CacheSpeed speed;
  speed.prefill = rows * tokens / group.max(steady_seconds() - start);
  cache->end_prompts();
  const CacheBytes bytes = cache->bytes();
  const auto kept = static_cast<double>(bytes.exact_tokens);
  double row_bytes[] = {static_cast<double>(bytes.stored), static_cast<double>(bytes.exact)};
  model.processes().tensor().sum(row_bytes, 2);
  speed.stored_bytes = row_bytes[0] / std::max(1.0, tokens - (kind == CacheKind::compressed ? exact : 0));
  speed.exact_bytes = kept > 0 ? row_bytes[1] / kept : 0;
  std::vector<std::vector<std::int64_t>> new_tokens(next.size());
  group.barrier();
  start = steady_seconds();
  for (std::int64_t step = 0; step < steps; ++step) {
    for (std::size_t s = 0; s < next.size(); ++s) new_tokens[s] = {std::max<std::int64_t>(0, next[s])};
    next = next_tokens(model.model(), new_tokens, *cache);
  }
  speed.decode = rows * static_cast<double>(steps * static_cast<std::int64_t>(prompts.size())) /
                 group.max(steady_seconds() - start);
  return speed;
}

}  // namespace headspan
