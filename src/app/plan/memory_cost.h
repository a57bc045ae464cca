// The memory that a unit of a study takes on its fullest rank, in bytes, from sizes alone.
#pragma once

#include "app/plan/job_sizes.h"

namespace headspan {

/// Bytes on the rank that has most.
struct MemoryCost {
  double program = 0;     ///< code, libraries, MPI's buffers: an idle process
  double weights = 0;     ///< with the buffers that they are read through
  double forward = 0;     ///< activations of one batch
  double waiting = 0;     ///< captured rows until a panel is full
  double grams = 0;       ///< of all streams, fit and held out
  double attention = 0;   ///< sums over what attention does, if they are saved with the Grams
  double exchange = 0;    ///< operands of a panel's product, and messages
  double statistics = 0;  ///< tables, factors, tiles of other ranks

  /// Returns the peak. The forward passes and the statistics follow each other: the larger of them counts.
  double peak() const;
};

/// Returns the bytes of the activations of a batch that are alive at once, in the widest step of a layer.
double forward_bytes(const ModelConfig& config, Dtype dtype, double batch, double tensor_parallel);

/// Returns the cost of a unit without `program`, if nothing is on GPUs. `reference`: the config of the
/// reference model, null without one.
MemoryCost memory_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
                       const GroupShape& group, const ModelConfig* reference = nullptr);

}  // namespace headspan
