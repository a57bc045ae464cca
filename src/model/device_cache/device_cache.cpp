#include "model/device_cache/device_cache.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "base/checked.h"
#include "model/cache/encode_tokens.h"

namespace headspan {
namespace {

constexpr std::int64_t kQueries = 128;           // of a sequence that are attended at a time
constexpr std::int64_t kScoreBytes = 128 << 20;  // of all queries that are

/// How many queries of how many sequences are attended together where one has scores of `bytes`.
struct TaskShape {
  std::int64_t queries, sequences;

  TaskShape(std::int64_t bytes, std::int64_t longest, std::int64_t all_sequences) {
    queries = std::clamp<std::int64_t>(kScoreBytes / bytes, 1, std::min(kQueries, longest));
    sequences = std::clamp<std::int64_t>(kScoreBytes / (bytes * queries), 1, all_sequences);
  }
};

/// Sequences first .. first + count of x: [sequences, ..], of which there may be one for all.
at::Tensor narrow_sequences(const at::Tensor& x, std::int64_t first, std::int64_t count) {
  return x.size(0) == 1 ? x : x.narrow(0, first, count);
}

}  // namespace

DeviceCache::DeviceCache(const DevicePlan& plan, std::int64_t sequences, Dtype compute, Dtype plain,
                         const DeviceComm& tensor_parallel)
    : StoringCache(sequences),
      plan_(plan),
      compute_(scalar_type(compute)),
      plain_(scalar_type(plain)),
      tensor_parallel_(tensor_parallel),
      keys_(make_stream(plan.keys)),
      values_(make_stream(plan.values)) {}

DeviceCache::StreamCache DeviceCache::make_stream(const std::vector<DeviceLayer>& layers) const {
  const c10::InferenceMode inference;
  const auto sequences = static_cast<std::int64_t>(lengths().size());
  StreamCache cache{&layers, {}, {}, {}};
  for (const DeviceLayer& layer : layers) {
    cache.blocks.emplace_back(layer.bands, sequences, plain_, plan_.device);
    const auto room = [&](std::int64_t tokens) {
      return at::zeros({sequences, tokens, layer.kv_heads, plan_.head_size},
                       at::dtype(plain_).device(plan_.device));
    };
    cache.exact.push_back(plan_.exact_first > 0 ? room(plan_.exact_first) : at::Tensor());
    cache.recent.push_back(plan_.exact_recent > 0 ? room(plan_.exact_recent - 1) : at::Tensor());
  }
  return cache;
}

const TokenLayout& DeviceCache::layout_of_new(const std::vector<std::int64_t>& counts) {
  if (!fresh_ || fresh_->counts() != counts)
    fresh_.emplace(lengths(), counts, plan_.exact_first, plan_.device);
  return *fresh_;
}

void DeviceCache::advance(const std::vector<std::int64_t>& counts) {
  KvCache::advance(counts);
  fresh_.reset();
}

void DeviceCache::append(Stream stream, std::int64_t layer, const at::Tensor& x,
                         const std::vector<std::int64_t>& counts) {
  const c10::InferenceMode inference;
  const TokenLayout& fresh = layout_of_new(counts);
  StreamCache& cache = stream_cache(stream);
  const at::Tensor z =
      encode_tokens((*cache.layers)[to_size(layer)].block, x.to(compute_).contiguous(), tensor_parallel_);
  DeviceBlock& block = cache.blocks[to_size(layer)];
  block.reserve(fresh.tokens(fresh.longest()) - plan_.exact_first);
  const auto go = [](const TokenLayout::Places& places, const at::Tensor& rows) {
    return rows.size(0) == places.rows.size(0) ? rows : rows.index_select(0, places.rows);
  };
  if (fresh.stored().rows.size(0) > 0) block.store(go(fresh.stored(), z), fresh.stored().slots);
  if (fresh.exact().rows.size(0) > 0)
    cache.exact[to_size(layer)].flatten(0, 1).index_copy_(0, fresh.exact().slots,
                                                          go(fresh.exact(), x).to(plain_));
}

DeviceView DeviceCache::view(const StreamCache& cache, std::int64_t layer) const {
  const at::ScalarType read = plain_ == at::kBFloat16 ? plain_ : compute_;
  return {cache.layers, &cache.blocks, layer, read, cache.exact[to_size(layer)], {}};
}

/// With the recent tokens of the past and the new ones x; keeps the last of them.
DeviceView DeviceCache::view_with_recent(StreamCache& cache, std::int64_t layer, const at::Tensor& x,
                                         const TokenLayout& fresh) const {
  DeviceView own = view(cache, layer);
  at::Tensor& kept = cache.recent[to_size(layer)];
  if (!kept.defined()) return own;
  own.recent = at::cat({kept.to(x.scalar_type()), fresh.padded(x)}, 1);
  kept = fresh.last_of(own.recent, plan_.exact_recent - 1);
  return own;
}

at::Tensor DeviceCache::attend_appended(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                        const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  const c10::InferenceMode inference;
  const TokenLayout& fresh = layout_of_new(counts);
  const DeviceView keys = view_with_recent(keys_, layer, k, fresh),
                   values = view_with_recent(values_, layer, v, fresh);
  const std::int64_t longest = fresh.longest(), before = std::max<std::int64_t>(0, plan_.exact_recent - 1);
  const at::Tensor own = fresh.padded(q.to(compute_).contiguous());
  at::Tensor out = at::empty_like(own);
  const std::int64_t columns = fresh.tokens(longest) + before + longest;
  const TaskShape shape(q.size(1) * columns * own.element_size(), longest, own.size(0));
  for (std::int64_t first = 0; first < longest; first += shape.queries) {
    const std::int64_t queries = std::min(shape.queries, longest - first);
    // Kept recent tokens and new ones up to the last of these queries, of each sequence as many.
    const auto near = [&](DeviceView all) {
      if (all.recent.defined()) all.recent = all.recent.narrow(1, first, before + queries);
      return all;
    };
    const DeviceView near_keys = near(keys), near_values = near(values);
    for (std::int64_t s = 0; s < own.size(0); s += shape.sequences) {
      const std::int64_t sequences = std::min(shape.sequences, own.size(0) - s);
      QueryBlock block;
      block.q = own.narrow(0, s, sequences).narrow(1, first, queries).contiguous();
      block.positions = narrow_sequences(fresh.positions(), s, sequences).narrow(1, first, queries);
      if (keys.recent.defined())
        block.recent_positions = block.positions.narrow(1, 0, 1) - before +
                                 at::arange(before + queries, block.positions.options());
      block.first_sequence = s;
      block.tokens = fresh.tokens(first + queries);
      block.sees_all = fresh.alike() && queries == 1;
      out.narrow(0, s, sequences)
          .narrow(1, first, queries)
          .copy_(attend_blocks(block, near_keys, near_values, plan_.exact_recent));
    }
  }
  return fresh.packed(out).to(q.scalar_type());
}

at::Tensor DeviceCache::decode_appended(Stream stream, std::int64_t layer,
                                        const std::vector<std::int64_t>& counts) {
  const c10::InferenceMode inference;
  const TokenLayout& fresh = layout_of_new(counts);
  const DeviceView own = view(stream_cache(stream), layer);
  const std::int64_t exact = fresh.exact().rows.size(0), stored = fresh.stored().rows.size(0);
  at::Tensor out = at::empty({exact + stored, own.layer().kv_heads, plan_.head_size},
                             at::dtype(compute_).device(plan_.device));
  if (stored > 0) out.index_copy_(0, fresh.stored().rows, lift_slots(own, fresh.stored().slots, compute_));
  if (exact > 0)
    out.index_copy_(0, fresh.exact().rows,
                    own.exact.flatten(0, 1).index_select(0, fresh.exact().slots).to(compute_));
  return out;
}

CacheBytes DeviceCache::bytes() const {
  CacheBytes bytes;
  for (const StreamCache* cache : {&keys_, &values_}) {
    for (const DeviceBlock& block : cache->blocks) bytes.stored += block.allocated_bytes();
    for (const auto* all : {&cache->exact, &cache->recent})
      for (const at::Tensor& one : *all)
        if (one.defined()) bytes.exact += static_cast<std::int64_t>(one.nbytes());
  }
  return bytes;
}

}  // namespace headspan
