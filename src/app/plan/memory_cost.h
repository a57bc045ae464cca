// The memory of a unit of a job, from sizes alone: bytes that its fullest rank holds.
#pragma once

#include "app/plan/job_sizes.h"

namespace headspan {

/// Bytes on the rank that has most.
struct MemoryCost {
  double program = 0;     ///< code, libraries, buffers of MPI: of a process that has done nothing yet
  double weights = 0;     ///< with what reading them takes
  double forward = 0;     ///< of one batch
  double waiting = 0;     ///< captured rows until a panel is full
  double grams = 0;       ///< of all streams, fit and held out
  double attention = 0;   ///< what attention does, where it is saved with the Grams
  double exchange = 0;    ///< operands of a panel's product and messages
  double statistics = 0;  ///< tables, factors, tiles of other ranks

  /// The forward or the statistics, whichever holds more.
  double peak() const;
};

/// Of the activations of a batch that are alive at once, in the widest step of a layer.
double forward_bytes(const ModelConfig& config, Dtype dtype, double batch, double tensor_parallel);

/// All but what the program itself holds, where nothing lies on GPUs.
MemoryCost memory_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
                       const GroupShape& group);

}  // namespace headspan
