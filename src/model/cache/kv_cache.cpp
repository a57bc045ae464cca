#include "model/cache/kv_cache.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "base/checked.h"
#include "base/error.h"
#include "dist/threads.h"
#include "model/cache/decode_attention.h"
#include "model/cache/encode_tokens.h"
#include "model/cache/page_attention.h"
#include "model/cache/partial_attention.h"
#include "model/kernels/skinny_gemm.h"

namespace headspan {
namespace {

constexpr std::int64_t kQueries = 128;  // attended at a time: they share what is unpacked

/// Queries of one sequence that are attended together.
struct Task {
  std::size_t sequence;
  std::int64_t row;       // of the first among the new tokens of all sequences
  std::int64_t position;  // of the first in its sequence
  std::int64_t count;
};

std::vector<Task> make_tasks(const std::vector<std::int64_t>& past, const std::vector<std::int64_t>& counts) {
  std::vector<Task> tasks;
  std::int64_t row = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    for (std::int64_t begin = 0; begin < counts[s]; begin += kQueries)
      tasks.push_back({s, row + begin, past[s] + begin, std::min(kQueries, counts[s] - begin)});
    row += counts[s];
  }
  return tasks;
}

/// Calls run(i) for i < count: several on a thread each, one on all threads.
template <class Run>
void for_each_in_parallel(std::size_t count, const Run& run) {
  if (count == 1) {
    run(std::size_t{0});
    return;
  }
  const SingleThreadedBlas serial_products;
  at::parallel_for(0, static_cast<std::int64_t>(count), 1, [&](std::int64_t begin, std::int64_t end) {
    const c10::InferenceMode inference;  // the guard of the calling thread does not reach this one
    for (std::int64_t i = begin; i < end; ++i) run(to_size(i));
  });
}

template <class Run>
void for_each_task(const std::vector<Task>& tasks, const Run& run) {
  for_each_in_parallel(tasks.size(), [&](std::size_t i) { run(tasks[i]); });
}

/// rows: of tokens `begin` .. end of the stored ones of a sequence, `columns` numbers each.
template <class T>
void append_rows(CachedSequence& cached, const PageShard& deal, std::int64_t begin, std::int64_t end,
                 const T* rows, std::int64_t columns) {
  deal.for_each_run(begin, end, [&](std::int64_t first, std::int64_t count) {
    cached.pages.append(rows + (first - begin) * columns, count);
  });
}

/// Whether each sequence gets one query, for which there are kernels of their own.
bool is_step(const at::Tensor& q, const std::vector<std::int64_t>& counts, std::int64_t kv_heads) {
  return q.scalar_type() == at::kFloat && q.size(1) / kv_heads <= kMostSkinnyRows &&
         std::all_of(counts.begin(), counts.end(), [](std::int64_t count) { return count == 1; });
}

/// Tokens that the queries of a task need as they are.
void narrow_recent(const Task& task, StreamView& view) {
  if (!view.recent.defined()) return;
  const std::int64_t first = std::max(view.recent_begin, task.position - view.exact_recent + 1);
  view.recent = view.recent.narrow(0, first - view.recent_begin, task.position + task.count - first);
  view.recent_begin = first;
}

/// Without the tokens that are as they are.
std::vector<StreamView> stored_only(const std::vector<StreamView>& views) {
  std::vector<StreamView> stored;
  for (const StreamView& view : views) stored.push_back({view.layer, view.pages, {}, {}, 0, 0});
  return stored;
}

}  // namespace

void KvCache::advance(const std::vector<std::int64_t>& counts) {
  for (std::size_t s = 0; s < lengths_.size(); ++s) lengths_[s] += counts[s];
}

at::Tensor StoringCache::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  append(Stream::k, layer, k, counts);
  append(Stream::v, layer, v, counts);
  return attend_appended(layer, q, k, v, counts);
}

PagedCache::PagedCache(const CachePlan& plan, std::int64_t sequences, Dtype compute, Dtype plain,
                       const DeviceComm& tensor_parallel)
    : StoringCache(sequences),
      plan_(plan),
      plain_(plain),
      compute_(scalar_type(compute)),
      tensor_parallel_(tensor_parallel),
      keys_(make_stream(plan.keys)),
      values_(make_stream(plan.values)) {}

PagedCache::StreamCache PagedCache::make_stream(const std::vector<CachedLayer>& layers) const {
  StreamCache cache{&layers, {}, {}};
  for (const CachedLayer& layer : layers) cache.formats.emplace_back(layer.block.bands, plain_);
  for (const RecordFormat& format : cache.formats) {
    auto& sequences = cache.sequences.emplace_back();
    for (std::size_t s = 0; s < lengths().size(); ++s) sequences.push_back({BlockPages(format), {}, {}});
  }
  return cache;
}

/// Every sequence begins on another rank, so that short ones fill all of them.
PageShard PagedCache::deal(std::size_t sequence) const {
  if (plan_.shared == SharedBlocks::replicated) return {};
  const std::int64_t ranks = tensor_parallel_.size(),
                     behind = static_cast<std::int64_t>(sequence) - tensor_parallel_.rank();
  return {(ranks - behind % ranks) % ranks, ranks};
}

void PagedCache::append(Stream stream, std::int64_t layer, const at::Tensor& x,
                        const std::vector<std::int64_t>& counts) {
  StreamCache& cache = stream_cache(stream);
  const at::Tensor wide = x.to(compute_).contiguous();
  const at::Tensor z =
      encode_tokens((*cache.layers)[to_size(layer)].block, wide, tensor_parallel_).contiguous();
  std::vector<std::int64_t> first_rows(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), first_rows.begin(), std::int64_t{0});
  for_each_in_parallel(counts.size(), [&](std::size_t s) {
    CachedSequence& cached = cache.sequences[to_size(layer)][s];
    const std::int64_t row = first_rows[s];
    const std::int64_t exact =
        std::min(counts[s], std::max<std::int64_t>(0, plan_.exact_first - lengths()[s]));
    if (exact > 0) {
      const at::Tensor first = x.narrow(0, row, exact).to(scalar_type(plain_));
      cached.exact = cached.exact.defined() ? at::cat({cached.exact, first}) : first.clone();
    }
    const std::int64_t begin = std::max<std::int64_t>(0, lengths()[s] - plan_.exact_first);
    const auto append_from = [&](const auto* rows) {
      append_rows(cached, deal(s), begin, begin + counts[s] - exact, rows + (row + exact) * z.size(1),
                  z.size(1));
    };
    compute_ == at::kDouble ? append_from(z.data_ptr<double>()) : append_from(z.data_ptr<float>());
  });
}

/// Without recent tokens.
StreamView PagedCache::view(const StreamCache& cache, std::int64_t layer, std::size_t sequence) const {
  StreamView view{&(*cache.layers)[to_size(layer)], {}, {}, {}, 0, plan_.exact_recent};
  for (const StoredSlice& slice : view.layer->slices)
    view.pages.push_back(&cache.sequences[to_size(slice.layer)][sequence].pages);
  const at::Tensor& exact = cache.sequences[to_size(layer)][sequence].exact;
  if (exact.defined()) view.exact = exact.scalar_type() == compute_ ? exact : exact.to(compute_);
  return view;
}

/// Of every sequence, with its recent tokens up to the new ones x; keeps the last of them.
std::vector<StreamView> PagedCache::views(StreamCache& cache, std::int64_t layer, const at::Tensor& x,
                                          const std::vector<std::int64_t>& counts) const {
  std::vector<StreamView> views;
  std::int64_t row = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    views.push_back(view(cache, layer, s));
    if (plan_.exact_recent > 0 && counts[s] > 0) {
      at::Tensor& kept = cache.sequences[to_size(layer)][s].recent;
      at::Tensor recent = x.narrow(0, row, counts[s]);
      if (kept.defined()) recent = at::cat({kept, recent});
      views.back().recent = recent.to(compute_);
      views.back().recent_begin = lengths()[s] + counts[s] - recent.size(0);
      const std::int64_t last = std::min(recent.size(0), plan_.exact_recent - 1);
      kept = recent.narrow(0, recent.size(0) - last, last).clone();
    }
    row += counts[s];
  }
  return views;
}

at::Tensor PagedCache::attend_appended(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                       const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  const std::vector<StreamView> keys = views(keys_, layer, k, counts),
                                values = views(values_, layer, v, counts);
  const at::Tensor own = q.to(compute_).contiguous();
  const at::Tensor out = plan_.shared == SharedBlocks::sharded ? attend_sharded(own, keys, values, counts)
                                                               : attend_replicated(own, keys, values, counts);
  return out.to(q.scalar_type());
}

at::Tensor PagedCache::attend_replicated(const at::Tensor& q, const std::vector<StreamView>& keys,
                                         const std::vector<StreamView>& values,
                                         const std::vector<std::int64_t>& counts) const {
  const PartialAttention whole{at::empty_like(q), {}};
  const std::vector<Task> tasks = make_tasks(lengths(), counts);
  if (is_step(q, counts, keys.front().layer->kv_heads)) {
    std::vector<std::int64_t> seen;
    for (const Task& task : tasks) seen.push_back(task.position + 1);
    attend_step(q, seen, keys, values, whole);
    return whole.values;
  }
  for_each_task(tasks, [&](const Task& task) {
    StreamView own_keys = keys[task.sequence], own_values = values[task.sequence];
    narrow_recent(task, own_keys);
    narrow_recent(task, own_values);
    std::vector<std::int64_t> seen(to_size(task.count));
    std::iota(seen.begin(), seen.end(), task.position + 1);
    attend_pages(q.narrow(0, task.row, task.count), seen, own_keys, own_values,
                 whole.queries(task.row, task.count));
  });
  return whole.values;
}

at::Tensor PagedCache::attend_sharded(const at::Tensor& q, const std::vector<StreamView>& keys,
                                      const std::vector<StreamView>& values,
                                      const std::vector<std::int64_t>& counts) const {
  const at::Tensor all = gather_queries(tensor_parallel_, q);
  const PartialAttention stored = PartialAttention::none(all);
  const bool has_exact = plan_.exact_first > 0 || plan_.exact_recent > 0;
  const PartialAttention exact = has_exact ? PartialAttention::none(q) : PartialAttention();
  const std::vector<StreamView> stored_keys = stored_only(keys), stored_values = stored_only(values);
  const std::vector<Task> tasks = make_tasks(lengths(), counts);
  const auto seen_of = [&](const Task& task) {
    std::vector<std::int64_t> seen;
    for (std::int64_t own = task.position; own < task.position + task.count; ++own)
      seen.push_back(deal(task.sequence)
                         .count(std::max<std::int64_t>(0, own + 1 - plan_.exact_first - plan_.exact_recent)));
    return seen;
  };
  const bool step = is_step(all, counts, keys.front().layer->kv_heads);
  for_each_task(tasks, [&](const Task& task) {
    StreamView own_keys = keys[task.sequence], own_values = values[task.sequence];
    narrow_recent(task, own_keys);
    narrow_recent(task, own_values);
    if (has_exact)
      attend_exact(q.narrow(0, task.row, task.count), task.position, own_keys, own_values,
                   exact.queries(task.row, task.count));
    const std::vector<std::int64_t> seen = seen_of(task);
    if (!step && seen.back() > 0)
      attend_pages(all.narrow(0, task.row, task.count), seen, stored_keys[task.sequence],
                   stored_values[task.sequence], stored.queries(task.row, task.count));
  });
  if (step) {
    std::vector<std::int64_t> seen;
    for (const Task& task : tasks) seen.push_back(seen_of(task).front());
    attend_step(all, seen, stored_keys, stored_values, stored);
  }
  return join_attention(tensor_parallel_, stored, exact);
}

at::Tensor PagedCache::decode_appended(Stream stream, std::int64_t layer,
                                       const std::vector<std::int64_t>& counts) {
  HS_ASSERT(plan_.shared == SharedBlocks::replicated);
  const StreamCache& cache = stream_cache(stream);
  const CachedLayer& plan = (*cache.layers)[to_size(layer)];
  std::vector<at::Tensor> parts;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    const StreamView own = view(cache, layer, s);
    const std::int64_t stored = cache.sequences[to_size(layer)][s].pages.tokens();
    const std::int64_t fresh = std::min(counts[s], stored);
    const std::int64_t d = plan_.head_size;
    if (fresh < counts[s]) {
      const std::int64_t exact = counts[s] - fresh;
      parts.push_back(own.exact.narrow(0, own.exact.size(0) - exact, exact));
    }
    parts.push_back(lift_pages(own, plan.kv_heads, d, stored - fresh, stored, compute_));
  }
  return at::cat(parts);
}

CacheBytes PagedCache::bytes() const {
  CacheBytes bytes;
  for (const StreamCache* cache : {&keys_, &values_})
    for (const auto& layer : cache->sequences)
      for (const CachedSequence& sequence : layer) {
        bytes.stored += sequence.pages.allocated_bytes();
        for (const at::Tensor* exact : {&sequence.exact, &sequence.recent})
          if (exact->defined()) bytes.exact += static_cast<std::int64_t>(exact->nbytes());
      }
  return bytes;
}

SimulatedCache::SimulatedCache(std::unique_ptr<StoringCache> stored, std::unique_ptr<StoringCache> full)
    : KvCache(static_cast<std::int64_t>(stored->lengths().size())),
      stored_(std::move(stored)),
      full_(std::move(full)) {}

at::Tensor SimulatedCache::attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                  const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  stored_->append(Stream::k, layer, k, counts);
  stored_->append(Stream::v, layer, v, counts);
  full_->append(Stream::k, layer, stored_->decode_appended(Stream::k, layer, counts), counts);
  full_->append(Stream::v, layer, stored_->decode_appended(Stream::v, layer, counts), counts);
  return full_->attend_appended(layer, q, k, v, counts);
}

void SimulatedCache::advance(const std::vector<std::int64_t>& counts) {
  KvCache::advance(counts);
  stored_->advance(counts);
  full_->advance(counts);
}

CacheBytes SimulatedCache::bytes() const { return full_->bytes(); }

}  // namespace headspan
