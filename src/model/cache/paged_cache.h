// The KV cache of a batch of sequences in host memory: pages of stored blocks (model/cache/block_pages.h) for
// each stream, layer and sequence, with attention in place.
#pragma once

#include <vector>

#include "model/cache/block_pages.h"
#include "model/cache/kv_cache.h"
#include "model/cache/page_attention.h"

namespace headspan {

/// One stream of one sequence in one layer.
struct CachedSequence {
  BlockPages pages;   ///< stored tokens; where they are sharded, those of this rank
  at::Tensor exact;   ///< [first tokens so far, kv_heads, d]; undefined: none
  at::Tensor recent;  ///< [last tokens, kv_heads, d], at most kept_recent() tokens; undefined: none
  at::Tensor starts;  ///< [tokens that begin a document, kv_heads, d]; undefined: none
};

class PagedCache : public StoringCache {
 public:
  /// `plan` and `tensor_parallel` must outlive the cache.
  PagedCache(const CachePlan& plan, std::int64_t sequences, const CacheTypes& types,
             const DeviceComm& tensor_parallel);

  CacheBytes bytes() const override;
  at::Tensor decode_appended(Stream stream, std::int64_t layer,
                             const std::vector<std::int64_t>& counts) override;
  at::Tensor decode_groups(Stream stream, std::int64_t layer,
                           const std::vector<std::int64_t>& counts) override;
  void rewrite_groups(Stream stream, std::int64_t layer, const at::Tensor& x,
                      const std::vector<std::int64_t>& counts) override;
  void keep_recent(std::int64_t layer, const at::Tensor& k, const at::Tensor& v,
                   const std::vector<std::int64_t>& counts) override;
  void rewind() override;

 protected:
  const StoredBlock& stored_block(Stream stream, std::int64_t layer) const override;
  void store(Stream stream, std::int64_t layer, const at::Tensor& x, const at::Tensor& z,
             const std::vector<std::int64_t>& counts) override;
  at::Tensor attend_stored(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<std::int64_t>& counts) override;

 private:
  struct StreamCache {
    const std::vector<CachedLayer>* layers;
    std::vector<RecordFormat> formats;                   // [layer]
    std::vector<std::vector<CachedSequence>> sequences;  // [layer][sequence]
  };

  StreamCache make_stream(const std::vector<CachedLayer>& layers, Dtype plain) const;
  StreamCache& stream_cache(Stream stream) { return stream == Stream::k ? keys_ : values_; }
  const StreamCache& stream_cache(Stream stream) const { return stream == Stream::k ? keys_ : values_; }
  PageShard shard_of(std::size_t sequence) const;
  at::Tensor without_starts(const at::Tensor& columns, std::size_t sequences) const;
  at::Tensor decode(const StreamView& view, std::int64_t begin, std::int64_t end) const;
  StreamView view(const StreamCache& cache, std::int64_t layer, std::size_t sequence) const;
  std::vector<StreamView> views_with_recent(StreamCache& cache, std::int64_t layer, const at::Tensor& x,
                                            const std::vector<std::int64_t>& counts) const;

  at::Tensor attend_replicated(const at::Tensor& q, const std::vector<StreamView>& keys,
                               const std::vector<StreamView>& values,
                               const std::vector<std::int64_t>& counts) const;
  at::Tensor attend_sharded(const at::Tensor& q, const std::vector<StreamView>& keys,
                            const std::vector<StreamView>& values,
                            const std::vector<std::int64_t>& counts) const;

  const CachePlan& plan_;
  StreamCache keys_, values_;
};

}  // namespace headspan
