// The KV cache of a batch of sequences, and attention over it. A StoringCache stores what its plan says (a
// full cache, or a compressed one) and reads stored columns in place: PagedCache (model/cache/paged_cache.h)
// in host memory, DeviceCache (model/device_cache/device_cache.h) on the device of the model. A
// SimulatedCache is a full cache of the keys and values that a plan reconstructs, instead of the model's. A
// PrefilledCache (model/cache/prefilled_cache.h) leaves the attention of prompts as it is. A
// sequence grows by any number of tokens at a time: a prompt, or one token. The first tokens of every
// document are kept as they are, also where a document begins in the middle of a sequence.
//
// Under tensor parallelism, what a plan computes from all heads of a layer (latents, kept heads that others
// refer to) is summed over the ranks before it is stored. Either every rank stores all of it and attends with
// its own heads, or its pages are sharded over the ranks and the queries of all heads are sent to the tokens.
// SharedBlocks in model/cache/cache_plan.h says what each costs.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "dist/comm/device_comm.h"
#include "io/stream.h"
#include "model/cache/cache_plan.h"
#include "model/cache/document_starts.h"

namespace headspan {

/// Bytes allocated on this rank for all sequences, layers and both streams.
struct CacheBytes {
  std::int64_t stored = 0;        ///< pages
  std::int64_t exact = 0;         ///< tokens that are kept as they are
  std::int64_t exact_tokens = 0;  ///< room for how many, of all sequences together
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  /// Returns how many tokens each sequence has so far.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }

  /// Announces the ids of `counts` new tokens of each sequence, end to end, before the first layer attends.
  virtual void begin(const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& counts) {
    static_cast<void>(tokens), static_cast<void>(counts);
  }

  /// Appends keys and values of `counts` new tokens of each sequence to `layer` and returns the attention of
  /// the new queries over all tokens up to their own: [tokens, heads, d]. q: [tokens, heads, d], k, v:
  /// [tokens, kv_heads, d], contiguous, the tokens of the sequences end to end. Called for the layers in
  /// ascending order. Collective over the tensor-parallel communicator.
  virtual at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& counts) = 0;

  /// Counts the new tokens as past. Called after the last layer.
  virtual void advance(const std::vector<std::int64_t>& counts);

  /// Says that what follows continues the prompts. May be called again.
  virtual void end_prompts() {}

  virtual CacheBytes bytes() const = 0;

 protected:
  explicit KvCache(std::int64_t sequences) : lengths_(static_cast<std::size_t>(sequences), 0) {}

  /// Begins to count at the first tokens again.
  void rewind() { std::fill(lengths_.begin(), lengths_.end(), 0); }

 private:
  std::vector<std::int64_t> lengths_;
};

/// A cache whose prompts attend to themselves as they are, and that can then be read again: each token as if
/// it were the first one behind a prompt.
class RereadableCache : public KvCache {
 public:
  /// Ends the prompts and lets the sequences be read again, in the same chunks: every token attends to what
  /// is stored of the tokens up to its own, and nothing more is stored. Collective, as attend is.
  virtual void read_again() = 0;

 protected:
  using KvCache::KvCache;
};

/// The dtypes of a cache.
struct CacheTypes {
  Dtype compute;  ///< of attention: float32 or float64
  Dtype plain;    ///< of stored columns without codes, and of first tokens that are kept as they are
};

/// What PagedCache and DeviceCache have in common: which tokens are exact (model/cache/exact_tokens.h), how
/// tokens are encoded, and in which types.
class StoringCache : public KvCache {
 public:
  void begin(const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& counts) final {
    starts_.follow(tokens, counts);
  }

  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) final;

  /// Appends one stream without attending. x: [tokens, kv_heads, d]. Collective, as attend is.
  void append(Stream stream, std::int64_t layer, const at::Tensor& x,
              const std::vector<std::int64_t>& counts);

  /// Attends to what was appended. k, v: the new tokens as they are. Collective, as attend is.
  at::Tensor attend_appended(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const std::vector<std::int64_t>& counts);

  /// Returns the last `counts` tokens, which were appended, as the plan reconstructs them: [tokens, kv_heads,
  /// d]. Not for sharded blocks.
  virtual at::Tensor decode_appended(Stream stream, std::int64_t layer,
                                     const std::vector<std::int64_t>& counts) = 0;

  /// For tokens that are quantised in groups, which only a PagedCache has: returns those of the groups that
  /// the last `counts` tokens complete, as the plan reconstructs them, [tokens, kv_heads, d].
  virtual at::Tensor decode_groups(Stream stream, std::int64_t layer,
                                   const std::vector<std::int64_t>& counts);

  /// Replaces what is stored of the same tokens by x: [tokens, kv_heads, d].
  virtual void rewrite_groups(Stream stream, std::int64_t layer, const at::Tensor& x,
                              const std::vector<std::int64_t>& counts);

  /// Remembers the last of the new tokens, which are not attended to, as recent ones.
  virtual void keep_recent(std::int64_t layer, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<std::int64_t>& counts) = 0;

  /// Lets what is stored be attended to again from the first token on, by attend_appended alone.
  virtual void rewind() { KvCache::rewind(); }

  const ExactTokens& exact() const { return exact_; }

 protected:
  /// `ends`: ids that end a document.
  StoringCache(std::int64_t sequences, const ExactTokens& exact, const std::vector<std::int64_t>& ends,
               const CacheTypes& types, const DeviceComm& tensor_parallel);

  virtual const StoredBlock& stored_block(Stream stream, std::int64_t layer) const = 0;

  /// Stores new tokens. x: the tokens as they are; z: [tokens, columns], the same encoded.
  virtual void store(Stream stream, std::int64_t layer, const at::Tensor& x, const at::Tensor& z,
                     const std::vector<std::int64_t>& counts) = 0;

  /// Does what attend_appended does, for a contiguous q of the compute type. The result may be of that type,
  /// too.
  virtual at::Tensor attend_stored(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const std::vector<std::int64_t>& counts) = 0;

  /// Counts tokens that are kept as they are: [.., kv_heads, d]; nothing where the tensor is undefined.
  /// `first`: whether they are of the stream and layer whose tokens are counted.
  static void count_exact(const at::Tensor& tokens, bool first, CacheBytes& bytes) {
    if (!tokens.defined()) return;
    bytes.exact += static_cast<std::int64_t>(tokens.nbytes());
    if (first) bytes.exact_tokens += tokens.numel() / (tokens.size(-1) * tokens.size(-2));
  }

  const DocumentStarts& starts() const { return starts_; }

  const ExactTokens exact_;
  const at::ScalarType compute_, plain_;
  const DeviceComm& tensor_parallel_;

 private:
  DocumentStarts starts_;
};

class SimulatedCache : public KvCache {
 public:
  /// Takes two fresh caches for the same sequences and heads: `stored` follows its plan, in which nothing is
  /// sharded; `full` stores everything in the compute type, with the recent tokens of that plan.
  SimulatedCache(std::unique_ptr<StoringCache> stored, std::unique_ptr<StoringCache> full);

  void begin(const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& counts) override {
    stored_->begin(tokens, counts);
  }
  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) override;
  void advance(const std::vector<std::int64_t>& counts) override;
  CacheBytes bytes() const override;

 private:
  std::unique_ptr<StoringCache> stored_, full_;
};

}  // namespace headspan
