// The KV caches of a batch of sequences, and attention over them. A StoringCache stores what its plan says
// (all of it: a full cache; or a compressed one) and reads stored columns where they lie: PagedCache in host
// memory, DeviceCache (model/device_cache/device_cache.h) where the model is. SimulatedCache stores
// everything, with the keys and values that a plan would have given in place of the model's. A sequence grows
// by any number of tokens at a time: a prompt, or one token.
//
// Under tensor parallelism what a plan makes of all heads of a layer (latents, kept heads that others refer
// to) is summed over the ranks as it is stored. It is replicated, and a rank attends with its own heads; or
// its pages are dealt out over the ranks, and queries of all heads come to where the tokens are. What each
// costs: SharedBlocks in model/cache/cache_plan.h.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "dist/comm/device_comm.h"
#include "io/stream.h"
#include "model/cache/block_pages.h"
#include "model/cache/cache_plan.h"
#include "model/cache/page_attention.h"

namespace headspan {

/// Of all sequences, layers and both streams, as allocated on this rank.
struct CacheBytes {
  std::int64_t stored = 0;  ///< pages
  std::int64_t exact = 0;   ///< first tokens as they are
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  /// Tokens of each sequence so far.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }

  /// Appends keys and values of `counts` new tokens of each sequence to `layer` and returns what the queries
  /// find in all tokens up to their own. q: [tokens, heads, d], k, v: [tokens, kv_heads, d], contiguous, the
  /// tokens of the sequences end to end. Layers ascending. Collective over the tensor-parallel communicator.
  virtual at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& counts) = 0;

  /// After the last layer: the new tokens count as past.
  virtual void advance(const std::vector<std::int64_t>& counts);

  virtual CacheBytes bytes() const = 0;

 protected:
  explicit KvCache(std::int64_t sequences) : lengths_(static_cast<std::size_t>(sequences), 0) {}

 private:
  std::vector<std::int64_t> lengths_;
};

class StoringCache : public KvCache {
 public:
  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) final;

  /// Appends one stream without attending. x: [tokens, kv_heads, d]. Collective as attend is.
  virtual void append(Stream stream, std::int64_t layer, const at::Tensor& x,
                      const std::vector<std::int64_t>& counts) = 0;

  /// Attends with what was appended. k, v: as they are, for the most recent tokens. Collective likewise.
  virtual at::Tensor attend_appended(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const std::vector<std::int64_t>& counts) = 0;

  /// What a plan gives in place of the last `counts` tokens, which were appended: [tokens, kv_heads, d]. Not
  /// where blocks are dealt out.
  virtual at::Tensor decode_appended(Stream stream, std::int64_t layer,
                                     const std::vector<std::int64_t>& counts) = 0;

 protected:
  using KvCache::KvCache;
};

/// One stream of one sequence in one layer.
struct CachedSequence {
  BlockPages pages;   ///< from token exact_first on; where they are dealt out, those of this rank
  at::Tensor exact;   ///< [tokens before exact_first so far, kv_heads, d]
  at::Tensor recent;  ///< [the last tokens, fewer than exact_recent, kv_heads, d]; undefined: none
};

class PagedCache : public StoringCache {
 public:
  /// `plan` and `tensor_parallel` must outlive the cache. `compute`: in which attention computes, float32 or
  /// float64; `plain`: in which columns of no few bits are stored.
  PagedCache(const CachePlan& plan, std::int64_t sequences, Dtype compute, Dtype plain,
             const DeviceComm& tensor_parallel);

  CacheBytes bytes() const override;
  void append(Stream stream, std::int64_t layer, const at::Tensor& x,
              const std::vector<std::int64_t>& counts) override;
  at::Tensor attend_appended(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const std::vector<std::int64_t>& counts) override;
  at::Tensor decode_appended(Stream stream, std::int64_t layer,
                             const std::vector<std::int64_t>& counts) override;

 private:
  struct StreamCache {
    const std::vector<CachedLayer>* layers;
    std::vector<RecordFormat> formats;                   // [layer]
    std::vector<std::vector<CachedSequence>> sequences;  // [layer][sequence]
  };

  StreamCache make_stream(const std::vector<CachedLayer>& layers) const;
  StreamCache& stream_cache(Stream stream) { return stream == Stream::k ? keys_ : values_; }
  const StreamCache& stream_cache(Stream stream) const { return stream == Stream::k ? keys_ : values_; }
  PageShard deal(std::size_t sequence) const;
  StreamView view(const StreamCache& cache, std::int64_t layer, std::size_t sequence) const;
  std::vector<StreamView> views(StreamCache& cache, std::int64_t layer, const at::Tensor& x,
                                const std::vector<std::int64_t>& counts) const;

  at::Tensor attend_replicated(const at::Tensor& q, const std::vector<StreamView>& keys,
                               const std::vector<StreamView>& values,
                               const std::vector<std::int64_t>& counts) const;
  at::Tensor attend_sharded(const at::Tensor& q, const std::vector<StreamView>& keys,
                            const std::vector<StreamView>& values,
                            const std::vector<std::int64_t>& counts) const;

  const CachePlan& plan_;
  Dtype plain_;
  at::ScalarType compute_;
  const DeviceComm& tensor_parallel_;
  StreamCache keys_, values_;
};

class SimulatedCache : public KvCache {
 public:
  /// Fresh caches of the same sequences and heads: `stored` as its plan says, in which nothing is dealt out;
  /// `full` of everything in the compute type, with the exact_recent of that plan.
  SimulatedCache(std::unique_ptr<StoringCache> stored, std::unique_ptr<StoringCache> full);

  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) override;
  void advance(const std::vector<std::int64_t>& counts) override;
  CacheBytes bytes() const override;

 private:
  std::unique_ptr<StoringCache> stored_, full_;
};

}  // namespace headspan
