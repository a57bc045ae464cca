#include "model/cache/kv_cache.h"

#include <c10/core/InferenceMode.h>

#include "base/error.h"
#include "model/cache/encode_tokens.h"

namespace headspan {

void KvCache::advance(const std::vector<std::int64_t>& counts) {
  for (std::size_t s = 0; s < lengths_.size(); ++s) lengths_[s] += counts[s];
}

StoringCache::StoringCache(std::int64_t sequences, const ExactTokens& exact,
                           const std::vector<std::int64_t>& ends, const CacheTypes& types,
                           const DeviceComm& tensor_parallel)
    : KvCache(sequences),
      exact_(exact),
      compute_(scalar_type(types.compute)),
      plain_(scalar_type(types.plain)),
      tensor_parallel_(tensor_parallel),
      starts_(sequences, exact.first, ends) {}

at::Tensor StoringCache::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  append(Stream::k, layer, k, counts);
  append(Stream::v, layer, v, counts);
  return attend_appended(layer, q, k, v, counts);
}

void StoringCache::append(Stream stream, std::int64_t layer, const at::Tensor& x,
                          const std::vector<std::int64_t>& counts) {
  const c10::InferenceMode inference;
  const at::Tensor wide = x.to(compute_).contiguous();
  store(stream, layer, x, encode_tokens(stored_block(stream, layer), wide, tensor_parallel_), counts);
}

at::Tensor StoringCache::attend_appended(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                         const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  const c10::InferenceMode inference;
  return attend_stored(layer, q.to(compute_).contiguous(), k, v, counts).to(q.scalar_type());
}

at::Tensor StoringCache::decode_groups(Stream, std::int64_t, const std::vector<std::int64_t>&) {
  HS_ASSERT(false);
  return {};
}

void StoringCache::rewrite_groups(Stream, std::int64_t, const at::Tensor&, const std::vector<std::int64_t>&) {
  HS_ASSERT(false);
}

SimulatedCache::SimulatedCache(std::unique_ptr<StoringCache> stored, std::unique_ptr<StoringCache> full)
    : KvCache(static_cast<std::int64_t>(stored->lengths().size())),
      stored_(std::move(stored)),
      full_(std::move(full)) {}

at::Tensor SimulatedCache::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  stored_->append(Stream::k, layer, k, counts);
  stored_->append(Stream::v, layer, v, counts);
  for (const Stream stream : {Stream::k, Stream::v}) {
    full_->append(stream, layer, stored_->decode_appended(stream, layer, counts), counts);
    if (stored_->exact().group > 1)
      full_->rewrite_groups(stream, layer, stored_->decode_groups(stream, layer, counts), counts);
  }
  return full_->attend_appended(layer, q, k, v, counts);
}

void SimulatedCache::advance(const std::vector<std::int64_t>& counts) {
  KvCache::advance(counts);
  stored_->advance(counts);
  full_->advance(counts);
}

CacheBytes SimulatedCache::bytes() const { return full_->bytes(); }

}  // namespace headspan
