// A study as it would run on a number of ranks: how they are divided, and what of the job its costs depend
// on. Not the costs themselves (plan/cost.h, plan/memory_cost.h).
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "app/job/job.h"
#include "app/plan/job_sizes.h"
#include "app/plan/passes.h"
#include "base/log.h"

namespace headspan {

struct PlannedStudy {
  GroupShape group;  // of each group of ranks; a group works on one unit at a time
  std::int64_t units = 0;
  TokenCounts tokens;
  ModelConfig config;
  std::optional<ModelConfig> reference;
  Dtype dtype = Dtype::float32;
  std::vector<DeviceShare> passes;  // on GPUs; empty: the Grams are summed on the CPU

  const ModelConfig* beside() const { return reference ? &*reference : nullptr; }
  bool sums_on_gpus() const { return !reference || reference->head_size == config.head_size; }
};

/// Reads config.json of the first checkpoint, but no weights; assumes tokens.limit tokens in full sequences
/// if the token file is missing, which it logs. Throws InputError, also if the ranks cannot be divided. One
/// rank.
PlannedStudy plan_study(const Job& job, std::int64_t ranks, const Log& log);

/// Returns what the passes on GPUs depend on.
PassSetting pass_setting(const Job& job, const PlannedStudy& planned);

}  // namespace headspan
