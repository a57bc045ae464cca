// A model together with the KV caches that an evaluation runs it with: in host memory, or on the GPU where
// the model is.
#pragma once

#include <memory>
#include <optional>

#include "app/run/model_input.h"
#include "app/run/process_layout.h"
#include "io/outputs/compression_plan.h"
#include "model/cache/kv_cache.h"
#include "model/device_cache/device_plan.h"

namespace headspan {

/// Where `ranks` tensor-parallel ranks best keep the blocks that they share, for caches of `tokens` tokens in
/// all: dealt out where replicated they and the maps would take more than half of `memory`, which is what the
/// weights leave of a rank's, and dealt out less than that. `plain`: in which plain columns are stored.
SharedBlocks choose_shared_blocks(const CompressionPlan& plan, Dtype plain, int ranks, double tokens,
                                  double memory);

class CachedModel {
 public:
  /// `plan` of the file at `plan_path` may be missing for full caches; all but it must outlive the object.
  /// Where blocks are dealt out there is no simulated cache; on GPUs nothing is dealt out.
  CachedModel(const Transformer& model, const ModelInput& input, const std::optional<CompressionPlan>& plan,
              const std::string& plan_path, std::int64_t exact_recent, const ProcessLayout& team,
              SharedBlocks shared = SharedBlocks::replicated);

  const Transformer& model() const { return model_; }
  const ProcessLayout& team() const { return team_; }
  Dtype dtype() const { return plain_; }  ///< of the forward

  /// Fresh, for as many sequences. Local; the ranks of a row make the same.
  std::unique_ptr<KvCache> make_cache(CacheKind kind, std::size_t sequences) const;

 private:
  struct Plan {
    CachePlan host;
    std::optional<DevicePlan> device;  // where the model is on a GPU
  };

  Plan make_plan(CachePlan plan) const;
  std::unique_ptr<StoringCache> make_storing(const Plan& plan, std::size_t sequences, Dtype plain) const;

  const Transformer& model_;
  const ProcessLayout& team_;
  Dtype plain_, compute_;
  Plan full_, compressed_;
  Plan replaced_;  // of all that a simulated cache puts in place of the model's keys and values
};

}  // namespace headspan
