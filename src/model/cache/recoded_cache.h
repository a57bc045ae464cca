// A full cache that goes through a codec once: while prompts are read, their tokens attend to each other as
// they are; when the prompts end, the keys and values of each are replaced by what the codec makes of them,
// as if they had been archived and brought back. Continuations attend to these, and so do prompts that are
// read again. Not a codec: it is given as a function.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "base/range.h"
#include "model/cache/kv_cache.h"

namespace headspan {

/// Replaces keys and values of a prompt, as a cache holds them, by what is left of them: [layers, tokens,
/// kv_heads, d]. ids: the prompt. Called with equal arguments on all ranks of a model, and must do the same
/// there.
using Recode =
    std::function<void(const std::vector<std::int64_t>& ids, std::vector<float>& k, std::vector<float>& v)>;

/// Makes a fresh full cache for the sequences.
using MakeFullCache = std::function<std::unique_ptr<StoringCache>()>;

class RecodedCache : public RereadableCache {
 public:
  /// heads: the KV heads of this rank, of kv_heads. tensor_parallel must outlive it.
  RecodedCache(std::int64_t sequences, MakeFullCache make, Recode recode, std::int64_t kv_heads,
               const Range& heads, const DeviceComm& tensor_parallel);

  void begin(const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& counts) override;
  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) override;
  void advance(const std::vector<std::int64_t>& counts) override;
  /// Recodes the prompts, the first time. Collective over the tensor-parallel communicator.
  void end_prompts() override;
  /// Recodes the prompts each time it is called, from what they were.
  void read_again() override;
  CacheBytes bytes() const override { return cache_->bytes(); }

 private:
  /// Tokens that were appended together; keys and values of each layer.
  struct Chunk {
    std::vector<std::int64_t> ids, counts;
    std::vector<at::Tensor> k, v;
  };

  enum class Phase { prompts, continuations, second_reading };

  void recode_prompts();
  std::vector<at::Tensor> prompts_of(std::vector<at::Tensor> Chunk::*stream, std::size_t sequence) const;
  std::vector<float> all_heads(const std::vector<at::Tensor>& layers) const;
  std::vector<at::Tensor> own_heads(const std::vector<float>& values,
                                    const std::vector<at::Tensor>& like) const;

  MakeFullCache make_;
  Recode recode_;
  std::int64_t kv_heads_;
  Range heads_;
  const DeviceComm& tensor_parallel_;
  std::unique_ptr<StoringCache> cache_;
  std::vector<Chunk> chunks_;  // of the prompts, until continuations begin
  Phase phase_ = Phase::prompts;
};

}  // namespace headspan
