// The KV cache of a batch of sequences, and attention over it. A StoringCache stores what its plan says (a
// full cache, or a compressed one) and reads stored columns in place: PagedCache (model/cache/paged_cache.h)
// in host memory, DeviceCache (model/device_cache/device_cache.h) where the model is. SimulatedCache stores
// everything, but with the keys and values that a plan reconstructs in place of the model's. A sequence grows
// by any number of tokens at a time: a prompt, or one token.
//
// Under tensor parallelism what a plan makes of all heads of a layer (latents, kept heads that others refer
// to) is summed over the ranks as it is stored. It is replicated, and a rank attends with its own heads; or
// its pages are sharded over the ranks, and queries of all heads go to where the tokens are. What each costs:
// SharedBlocks in model/cache/cache_plan.h.
#pragma once

#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

#include "dist/comm/device_comm.h"
#include "io/stream.h"
#include "model/cache/cache_plan.h"

namespace headspan {

/// Bytes allocated on this rank for all sequences, layers and both streams.
struct CacheBytes {
  std::int64_t stored = 0;  ///< pages
  std::int64_t exact = 0;   ///< tokens that are kept as they are
};

class KvCache {
 public:
  virtual ~KvCache() = default;

  /// Tokens of each sequence so far.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }

  /// Appends keys and values of `counts` new tokens of each sequence to `layer` and returns the attention of
  /// the new queries over all tokens up to their own: [tokens, heads, d]. q: [tokens, heads, d], k, v:
  /// [tokens, kv_heads, d], contiguous, the tokens of the sequences end to end. Layers ascending. Collective
  /// over the tensor-parallel communicator.
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

/// The dtypes of a cache.
struct CacheTypes {
  Dtype compute;  ///< in which attention computes: float32 or float64
  Dtype plain;    ///< in which columns without codes and tokens that are kept as they are are stored
};

/// What caches that store have in common: which tokens are exact (model/cache/exact_tokens.h), how tokens are
/// encoded, and in which types.
class StoringCache : public KvCache {
 public:
  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) final;

  /// Appends one stream without attending. x: [tokens, kv_heads, d]. Collective as attend.
  void append(Stream stream, std::int64_t layer, const at::Tensor& x,
              const std::vector<std::int64_t>& counts);

  /// Attends to what was appended. k, v: the new tokens as they are. Collective as attend.
  at::Tensor attend_appended(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const std::vector<std::int64_t>& counts);

  /// Returns what the plan reconstructs in place of the last `counts` tokens, which were appended: [tokens,
  /// kv_heads, d]. Not where blocks are sharded.
  virtual at::Tensor decode_appended(Stream stream, std::int64_t layer,
                                     const std::vector<std::int64_t>& counts) = 0;

 protected:
  StoringCache(std::int64_t sequences, const ExactTokens& exact, const CacheTypes& types,
               const DeviceComm& tensor_parallel);

  virtual const StoredBlock& stored_block(Stream stream, std::int64_t layer) const = 0;

  /// x: the new tokens as they are, z: [tokens, columns], encoded.
  virtual void store(Stream stream, std::int64_t layer, const at::Tensor& x, const at::Tensor& z,
                     const std::vector<std::int64_t>& counts) = 0;

  /// As attend_appended, with q contiguous and of the compute type, of which the result may be.
  virtual at::Tensor attend_stored(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                   const at::Tensor& v, const std::vector<std::int64_t>& counts) = 0;

  const ExactTokens exact_;
  const at::ScalarType compute_, plain_;
  const DeviceComm& tensor_parallel_;
};

class SimulatedCache : public KvCache {
 public:
  /// Fresh caches of the same sequences and heads: `stored` follows its plan, in which nothing is sharded;
  /// `full` stores everything in the compute type, with the recent tokens of that plan.
  SimulatedCache(std::unique_ptr<StoringCache> stored, std::unique_ptr<StoringCache> full);

  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) override;
  void advance(const std::vector<std::int64_t>& counts) override;
  CacheBytes bytes() const override;

 private:
  std::unique_ptr<StoringCache> stored_, full_;
};

}  // namespace headspan
