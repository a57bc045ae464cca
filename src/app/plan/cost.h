// What a unit of a job costs, from sizes alone: bytes that its fullest rank holds, bytes read, and by phase
// floating-point operations, bytes and messages that a rank receives. The formulas follow the code that they
// speak of; nothing is run. Not how long it takes (performance.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/plan/job_sizes.h"
#include "device/device_collector.h"
#include "model/core/dtype.h"
#include "model/core/model_config.h"

namespace headspan {

/// Of one phase of a unit, as its profile names them (app/study/run_unit.cpp): load, forward, gram, pairs,
/// heads, selection, ceiling, overlap.
struct PhaseCost {
  std::string phase;
  double flops = 0;     ///< floating-point operations, all ranks of the group together
  double fullest = 1;   ///< how many times the mean the rank with most of them has
  double received = 0;  ///< bytes that a rank receives from others, the mean over the ranks
  double messages = 0;  ///< that a rank waits for, one after another
};

/// Bytes of the checkpoint that a group reads for a unit.
double read_cost(const Job& job, const ModelConfig& config, Dtype dtype);
/// All phases that the job has, in order. `passes`: over the tokens, on GPUs; empty: one.
std::vector<PhaseCost> phase_costs(const Job& job, const ModelConfig& config, Dtype dtype,
                                   const TokenCounts& tokens, const GroupShape& group,
                                   const std::vector<DeviceShare>& passes = {});

}  // namespace headspan
