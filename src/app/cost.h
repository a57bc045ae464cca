// What a unit of a job costs, from sizes alone: bytes that its fullest rank holds, bytes that it receives,
// floating-point operations, bytes read. The formulas follow the code that they speak of; nothing is run.
#pragma once

#include <cstdint>

#include "app/job.h"
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
  double program = 0;     ///< code, libraries, buffers of MPI
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

/// Of one unit, on all ranks of its group together.
struct WorkCost {
  double forward = 0;     ///< floating-point operations
  double grams = 0;       ///< likewise
  double statistics = 0;  ///< likewise
  double read = 0;        ///< bytes of the checkpoint
};

/// Bytes that a rank receives from others during one unit, the mean over the ranks.
struct TrafficCost {
  double weights = 0;          ///< by broadcast from the rank that reads
  double tensor_parallel = 0;  ///< sums behind attention and MLP
  double heads = 0;            ///< heads exchanged for tokens
  double panels = 0;           ///< operands of the Grams' products
  double statistics = 0;       ///< factors and tiles

  double total() const { return weights + tensor_parallel + heads + panels + statistics; }
};

MemoryCost memory_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
                       const GroupShape& group);
WorkCost work_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens);
TrafficCost traffic_cost(const Job& job, const ModelConfig& config, Dtype dtype, const TokenCounts& tokens,
                         const GroupShape& group);

}  // namespace headspan
