// The KV cache of a batch of sequences on the device of the model. It stores and returns what PagedCache
// does, with the stored blocks of all sequences side by side (model/device_cache/device_block.h) and
// attention in ATen (model/device_cache/device_attention.h). The same code runs on the CPU, where tests
// compare the two; PagedCache is the fast one there. Under tensor parallelism every rank stores the blocks
// that ranks share.
#pragma once

#include <optional>
#include <vector>

#include "model/cache/kv_cache.h"
#include "model/device_cache/device_attention.h"
#include "model/device_cache/token_layout.h"

namespace headspan {

class DeviceCache : public StoringCache {
 public:
  /// `plan` and `tensor_parallel` must outlive the cache; `plan` was made for the compute type. Plain columns
  /// in bfloat16 are multiplied as they are. Those in float16 are converted to the compute type, because the
  /// weight of a single token may be too small for float16.
  DeviceCache(const DevicePlan& plan, std::int64_t sequences, const CacheTypes& types,
              const DeviceComm& tensor_parallel);

  void advance(const std::vector<std::int64_t>& counts) override;
  CacheBytes bytes() const override;
  at::Tensor decode_appended(Stream stream, std::int64_t layer,
                             const std::vector<std::int64_t>& counts) override;
  void keep_recent(std::int64_t layer, const at::Tensor& k, const at::Tensor& v,
                   const std::vector<std::int64_t>& counts) override;

 protected:
  const StoredBlock& stored_block(Stream stream, std::int64_t layer) const override;
  void store(Stream stream, std::int64_t layer, const at::Tensor& x, const at::Tensor& z,
             const std::vector<std::int64_t>& counts) override;
  at::Tensor attend_stored(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<std::int64_t>& counts) override;

 private:
  struct StreamCache {
    const std::vector<DeviceLayer>* layers;
    std::vector<DeviceBlock> blocks;  // [layers]
    std::vector<at::Tensor> exact;    // [layers] of [sequences, first tokens, kv_heads, d]; undefined: none
    std::vector<at::Tensor> recent;   // [layers] of [sequences, recent tokens, kv_heads, d]; undefined: none
    std::vector<at::Tensor> starts;   // [layers] of [sequences, tokens, kv_heads, d], ends of rows unused
  };

  StreamCache make_stream(const std::vector<DeviceLayer>& layers) const;
  StreamCache& stream_cache(Stream stream) { return stream == Stream::k ? keys_ : values_; }
  const TokenLayout& layout_of_new(const std::vector<std::int64_t>& counts);
  DeviceView view(const StreamCache& cache, std::int64_t layer) const;
  DeviceView view_with_recent(StreamCache& cache, std::int64_t layer, const at::Tensor& x,
                              const TokenLayout& layout) const;

  const DevicePlan& plan_;
  StreamCache keys_, values_;
  std::optional<TokenLayout> layout_;  // of the new tokens
};

}  // namespace headspan
