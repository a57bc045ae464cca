#include "model/device_cache/device_cache.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "base/checked.h"

namespace headspan {
namespace {

constexpr std::int64_t kQueries = 128;           // per sequence, attended together
constexpr std::int64_t kScoreBytes = 128 << 20;  // scores of all queries that are attended together

/// How many queries of how many sequences are attended together. `bytes` are those of the scores of one
/// query.
struct TaskShape {
  std::int64_t queries, sequences;

  TaskShape(std::int64_t bytes, std::int64_t longest, std::int64_t all_sequences) {
    queries = std::clamp<std::int64_t>(kScoreBytes / bytes, 1, std::min(kQueries, longest));
    sequences = std::clamp<std::int64_t>(kScoreBytes / (bytes * queries), 1, all_sequences);
  }
};

/// Returns sequences first .. first + count of x: [sequences, ..]; x itself if it has one entry for all
/// sequences.
at::Tensor narrow_sequences(const at::Tensor& x, std::int64_t first, std::int64_t count) {
  return x.size(0) == 1 ? x : x.narrow(0, first, count);
}

}  // namespace

DeviceCache::DeviceCache(const DevicePlan& plan, std::int64_t sequences, const CacheTypes& types,
                         const DeviceComm& tensor_parallel)
    : StoringCache(sequences, plan.exact, plan.document_ends, types, tensor_parallel),
      plan_(plan),
      keys_(make_stream(plan.keys)),
      values_(make_stream(plan.values)) {}

DeviceCache::StreamCache DeviceCache::make_stream(const std::vector<DeviceLayer>& layers) const {
  const c10::InferenceMode inference;
  const auto sequences = static_cast<std::int64_t>(lengths().size());
  StreamCache cache{&layers, {}, {}, {}, std::vector<at::Tensor>(layers.size())};
  for (const DeviceLayer& layer : layers) {
    cache.blocks.emplace_back(layer, sequences, plain_, plan_.device);
    const auto room = [&](std::int64_t tokens) {
      return at::zeros({sequences, tokens, layer.kv_heads, plan_.head_size},
                       at::dtype(plain_).device(plan_.device));
    };
    cache.exact.push_back(exact_.first > 0 ? room(exact_.first) : at::Tensor());
    cache.recent.push_back(exact_.recent > 0 ? room(exact_.kept_recent()) : at::Tensor());
  }
  return cache;
}

const TokenLayout& DeviceCache::layout_of_new(const std::vector<std::int64_t>& counts) {
  if (!layout_ || layout_->counts() != counts)
    layout_.emplace(lengths(), counts, exact_, starts(), plan_.device);
  return *layout_;
}

void DeviceCache::advance(const std::vector<std::int64_t>& counts) {
  KvCache::advance(counts);
  layout_.reset();
}

const StoredBlock& DeviceCache::stored_block(Stream stream, std::int64_t layer) const {
  return (stream == Stream::k ? plan_.keys : plan_.values)[to_size(layer)].block;
}

void DeviceCache::store(Stream stream, std::int64_t layer, const at::Tensor& x, const at::Tensor& z,
                        const std::vector<std::int64_t>& counts) {
  const TokenLayout& layout = layout_of_new(counts);
  StreamCache& cache = stream_cache(stream);
  DeviceBlock& block = cache.blocks[to_size(layer)];
  block.reserve(layout.stored_tokens());
  const auto select = [](const TokenLayout::Slots& slots, const at::Tensor& rows) {
    return rows.size(0) == slots.rows.size(0) ? rows : rows.index_select(0, slots.rows);
  };
  if (layout.stored().rows.size(0) > 0) block.store(select(layout.stored(), z), layout.stored().slots);
  if (layout.exact().rows.size(0) > 0)
    cache.exact[to_size(layer)].flatten(0, 1).index_copy_(0, layout.exact().slots,
                                                          select(layout.exact(), x).to(plain_));
  if (layout.starts().rows.size(0) == 0) return;
  at::Tensor& kept = cache.starts[to_size(layer)];
  const at::Tensor before = kept;
  kept = at::zeros({layout.start_positions().size(0), layout.start_positions().size(1), x.size(1), x.size(2)},
                   x.options().dtype(plain_));
  if (before.defined()) kept.narrow(1, 0, before.size(1)).copy_(before);
  kept.flatten(0, 1).index_copy_(0, layout.starts().slots, select(layout.starts(), x).to(plain_));
}

DeviceView DeviceCache::view(const StreamCache& cache, std::int64_t layer) const {
  const at::ScalarType read = plain_ == at::kBFloat16 ? plain_ : compute_;
  return {cache.layers,
          &cache.blocks,
          layer,
          read,
          cache.exact[to_size(layer)],
          {},
          cache.starts[to_size(layer)]};
}

/// Returns the view with recent tokens up to and including the new ones, x. Keeps the last of these for the
/// next step.
DeviceView DeviceCache::view_with_recent(StreamCache& cache, std::int64_t layer, const at::Tensor& x,
                                         const TokenLayout& layout) const {
  DeviceView stream = view(cache, layer);
  at::Tensor& kept = cache.recent[to_size(layer)];
  if (!kept.defined()) return stream;
  stream.recent = at::cat({kept.to(x.scalar_type()), layout.padded(x)}, 1);
  kept = layout.last_of(stream.recent, exact_.kept_recent());
  return stream;
}

void DeviceCache::keep_recent(std::int64_t layer, const at::Tensor& k, const at::Tensor& v,
                              const std::vector<std::int64_t>& counts) {
  const c10::InferenceMode inference;
  const TokenLayout& layout = layout_of_new(counts);
  view_with_recent(keys_, layer, k, layout);
  view_with_recent(values_, layer, v, layout);
}

at::Tensor DeviceCache::attend_stored(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                      const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  const TokenLayout& layout = layout_of_new(counts);
  const DeviceView keys = view_with_recent(keys_, layer, k, layout),
                   values = view_with_recent(values_, layer, v, layout);
  const std::int64_t longest = layout.longest(), before = exact_.kept_recent();
  const at::Tensor padded = layout.padded(q);
  at::Tensor out = at::empty_like(padded);
  const std::int64_t starts = layout.start_positions().defined() ? layout.start_positions().size(1) : 0,
                     columns = layout.tokens(longest) + before + longest + starts;
  const TaskShape shape(q.size(1) * columns * q.element_size(), longest, padded.size(0));
  for (std::int64_t first = 0; first < longest; first += shape.queries) {
    const std::int64_t queries = std::min(shape.queries, longest - first);
    // Recent tokens that these queries may read: those kept before the first one, and new ones up to the
    // last. Their number is the same for each sequence.
    const auto near = [&](DeviceView all) {
      if (all.recent.defined()) all.recent = all.recent.narrow(1, first, before + queries);
      return all;
    };
    const DeviceView near_keys = near(keys), near_values = near(values);
    for (std::int64_t s = 0; s < padded.size(0); s += shape.sequences) {
      const std::int64_t sequences = std::min(shape.sequences, padded.size(0) - s);
      QueryBlock block;
      block.q = padded.narrow(0, s, sequences).narrow(1, first, queries).contiguous();
      block.positions = narrow_sequences(layout.positions(), s, sequences).narrow(1, first, queries);
      if (keys.recent.defined())
        block.recent_positions = block.positions.narrow(1, 0, 1) - before +
                                 at::arange(before + queries, block.positions.options());
      if (layout.start_positions().defined())
        block.start_positions = layout.start_positions().narrow(0, s, sequences);
      block.first_sequence = s;
      block.tokens = layout.tokens(first + queries);
      block.sees_all = layout.is_uniform() && queries == 1;
      out.narrow(0, s, sequences)
          .narrow(1, first, queries)
          .copy_(attend_blocks(block, near_keys, near_values, exact_));
    }
  }
  return layout.packed(out);
}

at::Tensor DeviceCache::decode_appended(Stream stream, std::int64_t layer,
                                        const std::vector<std::int64_t>& counts) {
  const c10::InferenceMode inference;
  const TokenLayout& layout = layout_of_new(counts);
  const DeviceView decoded = view(stream_cache(stream), layer);
  const std::int64_t exact = layout.exact().rows.size(0), stored = layout.stored().rows.size(0);
  at::Tensor out = at::empty({exact + stored, decoded.layer().kv_heads, plan_.head_size},
                             at::dtype(compute_).device(plan_.device));
  if (stored > 0)
    out.index_copy_(0, layout.stored().rows, decode_slots(decoded, layout.stored().slots, compute_));
  if (exact > 0)
    out.index_copy_(0, layout.exact().rows,
                    decoded.exact.flatten(0, 1).index_select(0, layout.exact().slots).to(compute_));
  if (layout.starts().rows.size(0) > 0)
    out.index_copy_(0, layout.starts().rows,
                    decoded.starts.flatten(0, 1).index_select(0, layout.starts().slots).to(compute_));
  return out;
}

CacheBytes DeviceCache::bytes() const {
  CacheBytes bytes;
  for (const StreamCache* cache : {&keys_, &values_}) {
    for (const DeviceBlock& block : cache->blocks) bytes.stored += block.allocated_bytes();
    for (const auto* layers : {&cache->exact, &cache->recent, &cache->starts})
      for (const at::Tensor& tokens : *layers)
        count_exact(tokens, cache == &keys_ && &tokens == &layers->front(), bytes);
  }
  return bytes;
}

}  // namespace headspan
