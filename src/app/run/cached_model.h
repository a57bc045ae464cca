// A model with the KV caches that an evaluation runs it with. The caches are in the memory that holds the
// model: the host's or its GPU's.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "app/run/model_input.h"
#include "app/run/process_layout.h"
#include "base/error.h"
#include "io/outputs/compression_plan.h"
#include "model/cache/prefilled_cache.h"
#include "model/cache/recoded_cache.h"
#include "model/device_cache/device_plan.h"

namespace headspan {

/// Returns how `ranks` tensor-parallel ranks store the blocks that they share, for caches of `tokens` tokens
/// in all. They are sharded if replicated blocks and maps would take more than half of `memory` (what the
/// weights leave of a rank's memory, in bytes) and sharded ones take less. `plain`: dtype of plain columns.
SharedBlocks choose_shared_blocks(const CompressionPlan& plan, Dtype plain, int ranks, double tokens,
                                  double memory);

/// How a plan's caches are made.
struct CompressedCacheOptions {
  std::string plan_path;          ///< where the plan was read, for messages
  std::int64_t exact_recent = 0;  ///< the last tokens of a sequence that are kept exactly
  /// There is no simulated cache of sharded blocks, and no sharding on GPUs.
  SharedBlocks shared = SharedBlocks::replicated;
  std::vector<std::int64_t> document_ends{};  ///< ids of tokens behind which a new document begins
  bool exact_prefill = false;                 ///< prompts attend to themselves as they are
};

class CachedModel {
 public:
  /// Full caches alone. `model` and `processes` must outlive the object.
  CachedModel(const Transformer& model, const ModelInput& input, const ProcessLayout& processes);

  /// Full caches and those of the plan.
  CachedModel(const Transformer& model, const ModelInput& input, const ProcessLayout& processes,
              const CompressionPlan& plan, const CompressedCacheOptions& options);

  /// Full caches, and as compressed ones those whose prompts go through a codec.
  CachedModel(const Transformer& model, const ModelInput& input, const ProcessLayout& processes,
              Recode recode);

  const Transformer& model() const { return model_; }
  const ProcessLayout& processes() const { return processes_; }
  Dtype dtype() const { return plain_; }  ///< of the forward
  /// Whether prompts attend to themselves as they are, and only continuations to what is stored.
  bool exact_prefill() const { return exact_prefill_ || recode_; }

  /// Returns an empty cache for `sequences` sequences. Local; the ranks of a row make the same.
  std::unique_ptr<KvCache> make_cache(CacheKind kind, std::size_t sequences) const;

  /// Returns an empty compressed cache whose prompts attend to themselves as they are: through the codec, or
  /// that of options.exact_prefill; null if there is neither. Local.
  std::unique_ptr<RereadableCache> make_rereadable(std::size_t sequences) const;

  /// Returns the error for a forward pass of `what` that gave a number that is not finite.
  InputError overflow(const std::string& what) const;

 private:
  struct Plan {
    CachePlan host;
    std::optional<DevicePlan> device;  // if the model is on a GPU
  };

  Plan make_plan(CachePlan plan) const;
  std::unique_ptr<StoringCache> make_storing(const Plan& plan, std::size_t sequences, Dtype plain) const;

  const Transformer& model_;
  const ProcessLayout& processes_;
  Dtype plain_, compute_;
  Plan full_, compressed_;
  bool exact_prefill_ = false;
  Recode recode_;
  Plan replaced_;  // for what a simulated cache puts in place of the model's keys and values
};

}  // namespace headspan
