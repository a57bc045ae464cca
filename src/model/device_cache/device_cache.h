// The KV cache of a batch of sequences on the device of the model: what PagedCache stores and gives, with
// stored blocks of all sequences side by side (model/device_cache/device_block.h) and attention in ATen
// (model/device_cache/device_attention.h). The same code runs on the CPU, where tests compare the two;
// PagedCache is what is fast there. Under tensor parallelism blocks that ranks share are replicated.
#pragma once

#include <optional>
#include <vector>

#include "model/cache/kv_cache.h"
#include "model/device_cache/device_attention.h"
#include "model/device_cache/token_layout.h"

namespace headspan {

class DeviceCache : public StoringCache {
 public:
  /// `plan` and `tensor_parallel` must outlive the cache. `compute`: in which attention computes, as the plan
  /// was made; `plain`: in which columns of no few bits are stored. In bfloat16 they are multiplied as they
  /// are, in float16 in the compute type: weights of single tokens may be too small for it.
  DeviceCache(const DevicePlan& plan, std::int64_t sequences, Dtype compute, Dtype plain,
              const DeviceComm& tensor_parallel);

  void advance(const std::vector<std::int64_t>& counts) override;
  CacheBytes bytes() const override;
  void append(Stream stream, std::int64_t layer, const at::Tensor& x,
              const std::vector<std::int64_t>& counts) override;
  at::Tensor attend_appended(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const std::vector<std::int64_t>& counts) override;
  at::Tensor decode_appended(Stream stream, std::int64_t layer,
                             const std::vector<std::int64_t>& counts) override;

 private:
  struct StreamCache {
    const std::vector<DeviceLayer>* layers;
    std::vector<DeviceBlock> blocks;  // [layers]
    std::vector<at::Tensor> exact;    // [layers] of [sequences, exact_first, kv_heads, d]; undefined: none
    std::vector<at::Tensor> recent;   // [layers] of [sequences, exact_recent - 1, kv_heads, d]; likewise
  };

  StreamCache make_stream(const std::vector<DeviceLayer>& layers) const;
  StreamCache& stream_cache(Stream stream) { return stream == Stream::k ? keys_ : values_; }
  const TokenLayout& layout_of_new(const std::vector<std::int64_t>& counts);
  DeviceView view(const StreamCache& cache, std::int64_t layer) const;
  DeviceView view_with_recent(StreamCache& cache, std::int64_t layer, const at::Tensor& x,
                              const TokenLayout& fresh) const;

  const DevicePlan& plan_;
  at::ScalarType compute_, plain_;
  const DeviceComm& tensor_parallel_;
  StreamCache keys_, values_;
  std::optional<TokenLayout> fresh_;  // of the step that is being run
};

}  // namespace headspan
