#include "model/cache/recoded_cache.h"

#include <ATen/ATen.h>

#include "base/checked.h"

namespace headspan {

RecodedCache::RecodedCache(std::int64_t sequences, MakeFullCache make, Recode recode, std::int64_t kv_heads,
                           const Range& heads, const DeviceComm& tensor_parallel)
    : RereadableCache(sequences),
      make_(std::move(make)),
      recode_(std::move(recode)),
      kv_heads_(kv_heads),
      heads_(heads),
      tensor_parallel_(tensor_parallel),
      cache_(make_()) {}

void RecodedCache::begin(const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& counts) {
  if (phase_ != Phase::second_reading) cache_->begin(tokens, counts);
  if (phase_ == Phase::prompts) chunks_.push_back({tokens, counts, {}, {}});
}

at::Tensor RecodedCache::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  if (phase_ == Phase::second_reading) return cache_->attend_appended(layer, q, k, v, counts);
  if (phase_ == Phase::prompts) {
    chunks_.back().k.push_back(k);
    chunks_.back().v.push_back(v);
  }
  return cache_->attend(layer, q, k, v, counts);
}

void RecodedCache::advance(const std::vector<std::int64_t>& counts) {
  KvCache::advance(counts);
  cache_->advance(counts);
}

/// Returns keys or values of a sequence's prompt: [tokens, heads, d] of each layer.
std::vector<at::Tensor> RecodedCache::prompts_of(std::vector<at::Tensor> Chunk::*stream,
                                                 std::size_t sequence) const {
  std::vector<at::Tensor> layers;
  for (std::size_t layer = 0; layer < (chunks_.front().*stream).size(); ++layer) {
    std::vector<at::Tensor> parts;
    for (const Chunk& chunk : chunks_) {
      std::int64_t first = 0;
      for (std::size_t s = 0; s < sequence; ++s) first += chunk.counts[s];
      parts.push_back((chunk.*stream)[layer].narrow(0, first, chunk.counts[sequence]));
    }
    layers.push_back(at::cat(parts));
  }
  return layers;
}

/// Returns the values of all heads: [layers, tokens, kv_heads, d]. Collective.
std::vector<float> RecodedCache::all_heads(const std::vector<at::Tensor>& layers) const {
  const std::int64_t tokens = layers.front().size(0), d = layers.front().size(2);
  const auto count = static_cast<std::int64_t>(layers.size());
  std::vector<float> values(to_size(count * tokens * kv_heads_ * d));
  const at::Tensor all = at::from_blob(values.data(), {count, tokens, kv_heads_, d}, at::kFloat);
  for (std::int64_t layer = 0; layer < count; ++layer)
    all[layer].narrow(1, heads_.first, heads_.count).copy_(layers[to_size(layer)]);
  if (tensor_parallel_.host().size() > 1)
    tensor_parallel_.host().sum(values.data(), static_cast<std::int64_t>(values.size()));
  return values;
}

/// Returns this rank's heads of what all_heads returned, of the type of the tensors `like`.
std::vector<at::Tensor> RecodedCache::own_heads(const std::vector<float>& values,
                                                const std::vector<at::Tensor>& like) const {
  const std::int64_t tokens = like.front().size(0), d = like.front().size(2);
  std::vector<at::Tensor> layers;
  for (std::size_t layer = 0; layer < like.size(); ++layer) {
    auto* const first =
        const_cast<float*>(&values[layer * to_size(tokens * kv_heads_ * d)]);  // it is only read
    layers.push_back(at::from_blob(first, {tokens, kv_heads_, d}, at::kFloat)
                         .narrow(1, heads_.first, heads_.count)
                         .to(like[layer].options(), /*non_blocking=*/false, /*copy=*/true)
                         .contiguous());
  }
  return layers;
}

void RecodedCache::end_prompts() {
  if (phase_ == Phase::prompts && !chunks_.empty()) recode_prompts();
  phase_ = Phase::continuations;
  chunks_.clear();
}

void RecodedCache::read_again() {
  HS_ASSERT(phase_ != Phase::continuations);
  recode_prompts();
  phase_ = Phase::second_reading;
  rewind();
  cache_->rewind();
}

void RecodedCache::recode_prompts() {
  const std::size_t sequences = lengths().size();
  std::vector<std::vector<at::Tensor>> k(chunks_.front().k.size()), v(k.size());  // [layer][sequence]
  std::vector<std::int64_t> ids, counts;
  for (std::size_t s = 0; s < sequences; ++s) {
    std::vector<std::int64_t> prompt;
    for (const Chunk& chunk : chunks_) {
      std::int64_t first = 0;
      for (std::size_t before = 0; before < s; ++before) first += chunk.counts[before];
      const auto begin = chunk.ids.begin() + first;
      prompt.insert(prompt.end(), begin, begin + chunk.counts[s]);
    }
    const std::vector<at::Tensor> old_k = prompts_of(&Chunk::k, s), old_v = prompts_of(&Chunk::v, s);
    std::vector<float> all_k = all_heads(old_k), all_v = all_heads(old_v);
    if (!prompt.empty()) recode_(prompt, all_k, all_v);
    const std::vector<at::Tensor> new_k = own_heads(all_k, old_k), new_v = own_heads(all_v, old_v);
    for (std::size_t layer = 0; layer < k.size(); ++layer) {
      k[layer].push_back(new_k[layer]);
      v[layer].push_back(new_v[layer]);
    }
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    counts.push_back(static_cast<std::int64_t>(prompt.size()));
  }
  cache_ = make_();
  cache_->begin(ids, counts);
  for (std::size_t layer = 0; layer < k.size(); ++layer) {
    const auto number = static_cast<std::int64_t>(layer);
    cache_->append(Stream::k, number, at::cat(k[layer]), counts);
    cache_->append(Stream::v, number, at::cat(v[layer]), counts);
  }
  cache_->advance(counts);
}

}  // namespace headspan
