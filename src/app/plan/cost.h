// What a unit of a study costs, from sizes alone: for each phase the floating-point operations, and the bytes
// and messages that a rank receives. The formulas follow the code of the phases; nothing is run. Not the
// memory (memory_cost.h), and not how long a phase takes (performance.h).
#pragma once

#include <string>
#include <vector>

#include "app/plan/job_sizes.h"
#include "device/device_collector.h"
#include "model/core/dtype.h"
#include "model/core/model_config.h"

namespace headspan {

/// One phase of a unit, as its profile names it (app/study/run_unit.cpp): load, forward, gram, pairs, heads,
/// selection, ceiling or overlap.
struct PhaseCost {
  std::string phase;
  double flops = 0;     ///< of all ranks of the group together
  double fullest = 1;   ///< flops of the rank that has most, over the mean
  double received = 0;  ///< bytes that a rank receives from others, the mean over the ranks
  double messages = 0;  ///< that a rank waits for, one after another
};

/// Returns the phases that the job has, in order. `passes`: over the tokens, on GPUs; empty: one.
/// `reference`: the config of the reference model, null without one.
std::vector<PhaseCost> phase_costs(const Job& job, const ModelConfig& config, Dtype dtype,
                                   const TokenCounts& tokens, const GroupShape& group,
                                   const std::vector<DeviceShare>& passes = {},
                                   const ModelConfig* reference = nullptr);

}  // namespace headspan
