#include "app/run/batch_tokens.h"

#include <algorithm>

namespace headspan {

std::int64_t batch_tokens(const Job::Run& rule, std::int64_t tokens, std::int64_t rows, bool gpu) {
  const std::int64_t share = std::max<std::int64_t>(1, (tokens + rows - 1) / rows);
  return rule.batch_tokens.value_or(std::min(gpu ? kGpuBatch : kHostBatch, share));
}

std::int64_t batch_tokens(const Job::Run& rule, const Sample& sample, const ProcessLayout& processes) {
  return batch_tokens(rule, sample.total(), processes.group().size() / processes.tensor().size(),
                      processes.gpu().has_value());
}

}  // namespace headspan
