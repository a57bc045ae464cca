// What a unit of a job costs, from sizes alone: bytes that its fullest rank holds, bytes read, and by phase
// floating-point operations, bytes and messages that a rank receives. The formulas follow the code that they
// speak of; nothing is run. Not how long it takes (performance.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/job.h"
#include "device/device_collector.h"
#include "model/dtype.h"
#include "model/model_config.h"

namespace headspan {

/// How a group of ranks is laid out.
struct GroupShape {
  std::int64_t ranks = 1;
  std::int64_t tensor_parallel = 1;
  GridShape grid;

  std::int64_t data_parallel() const { return ranks / tensor_parallel; }
};

/// Tokens that enter the statistics.
struct TokenCounts {
  std::int64_t fit = 0;
  std::int64_t heldout = 0;
  std::int64_t longest = 0;  ///< of the sequences

  std::int64_t total() const { return fit + heldout; }
};

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

/// Of one phase of a unit, as its profile names them (unit.cpp): load, forward, gram, pairs, heads,
/// selection, ceiling, overlap.
struct PhaseCost {
  std::string phase;
  double flops = 0;     ///< floating-point operations, all ranks of the group together
  double fullest = 1;   ///< how many times the mean the rank with most of them has
  double received = 0;  ///< bytes that a rank receives from others, the mean over the ranks
  double messages = 0;  ///< that a rank waits for, one after another
};

/// Of the activations of a batch that are alive at once, in the widest step of a layer.
double forward_bytes(const ModelConfig& config, Dtype dtype, double batch, double tensor_parallel);

/// All but what the program itself holds, where nothing lies on GPUs.
MemoryCost memory_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
                       const GroupShape& group);
/// Bytes of the checkpoint that a group reads for a unit.
double read_cost(const Job& job, const ModelConfig& config, Dtype dtype);
/// All phases that the job has, in order. `passes`: over the tokens, on GPUs; empty: one.
std::vector<PhaseCost> phase_costs(const Job& job, const ModelConfig& config, Dtype dtype,
                                   const TokenCounts& tokens, const GroupShape& group,
                                   const std::vector<DeviceShare>& passes = {});

}  // namespace headspan
