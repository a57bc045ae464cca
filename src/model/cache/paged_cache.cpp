#include "model/cache/paged_cache.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "base/checked.h"
#include "base/error.h"
#include "dist/threads.h"
#include "model/cache/decode_attention.h"
#include "model/cache/partial_attention.h"
#include "model/kernels/skinny_gemm.h"

namespace headspan {
namespace {

constexpr std::int64_t kQueries = 128;  // attended together: they share what is unpacked

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

/// Calls run(i) for i < count, in parallel with one thread each. A single call may use all threads.
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

/// Appends those rows that this rank holds. rows: [end - begin, columns], of stored tokens begin .. end.
template <class T>
void append_rows(BlockPages& pages, const PageShard& shard, std::int64_t begin, std::int64_t end,
                 const T* rows) {
  shard.for_each_run(begin, end, [&](std::int64_t first, std::int64_t count) {
    pages.append(rows + (first - begin) * pages.format().columns(), count);
  });
}

/// Returns the stored tokens whose groups `count` more tokens complete.
Range completed_groups(const ExactTokens& kept, std::int64_t past, std::int64_t count) {
  const auto complete = [&](std::int64_t tokens) {
    return split_tokens(kept, tokens).stored / kept.group * kept.group;
  };
  return {complete(past), complete(past + count) - complete(past)};
}

/// Returns whether each sequence has one query, in float32, so that attend_step can compute it.
bool is_step(const at::Tensor& q, const std::vector<std::int64_t>& counts, std::int64_t kv_heads) {
  return q.scalar_type() == at::kFloat && q.size(1) / kv_heads <= kMostSkinnyRows &&
         std::all_of(counts.begin(), counts.end(), [](std::int64_t count) { return count == 1; });
}

/// Leaves out recent tokens that no query of the task reads as they are.
void narrow_recent(const Task& task, StreamView& view) {
  if (!view.recent.defined()) return;
  const std::int64_t first = split_tokens(view.kept, task.position + 1).recent_begin;
  view.recent = view.recent.narrow(0, first - view.recent_begin, task.position + task.count - first);
  view.recent_begin = first;
}

/// Returns the views without the tokens that are kept as they are.
std::vector<StreamView> stored_only(const std::vector<StreamView>& views) {
  std::vector<StreamView> stored;
  stored.reserve(views.size());
  for (const StreamView& view : views) stored.push_back({view.layer, view.pages, {}, {}, 0, {}, {}, {}});
  return stored;
}

/// Appends rows of x to tokens that are kept as they are, in their type.
void keep(const at::Tensor& x, const std::vector<std::int64_t>& rows, at::ScalarType type, at::Tensor& kept) {
  if (rows.empty()) return;
  const at::Tensor added = x.index_select(0, at::tensor(rows, at::kLong)).to(type);
  kept = kept.defined() ? at::cat({kept, added}) : added;
}

}  // namespace

PagedCache::PagedCache(const CachePlan& plan, std::int64_t sequences, const CacheTypes& types,
                       const DeviceComm& tensor_parallel)
    : StoringCache(sequences, plan.exact, plan.document_ends, types, tensor_parallel),
      plan_(plan),
      keys_(make_stream(plan.keys, types.plain)),
      values_(make_stream(plan.values, types.plain)) {}

PagedCache::StreamCache PagedCache::make_stream(const std::vector<CachedLayer>& layers, Dtype plain) const {
  StreamCache cache{&layers, {}, {}};
  for (const CachedLayer& layer : layers)
    cache.formats.emplace_back(layer.block.bands, plain, layer.block.weights);
  for (const RecordFormat& format : cache.formats) {
    auto& sequences = cache.sequences.emplace_back();
    for (std::size_t s = 0; s < lengths().size(); ++s) sequences.push_back({BlockPages(format), {}, {}, {}});
  }
  return cache;
}

const StoredBlock& PagedCache::stored_block(Stream stream, std::int64_t layer) const {
  return (*stream_cache(stream).layers)[to_size(layer)].block;
}

/// Returns the pages of a sequence that this rank holds. Sequence s begins on rank s modulo their number, so
/// that short sequences are spread over all ranks.
PageShard PagedCache::shard_of(std::size_t sequence) const {
  if (plan_.shared == SharedBlocks::replicated) return {};
  const std::int64_t ranks = tensor_parallel_.size(),
                     after_first = static_cast<std::int64_t>(sequence) - tensor_parallel_.rank();
  return {(ranks - after_first % ranks) % ranks, ranks};
}

void PagedCache::store(Stream stream, std::int64_t layer, const at::Tensor& x, const at::Tensor& z,
                       const std::vector<std::int64_t>& counts) {
  std::vector<CachedSequence>& sequences = stream_cache(stream).sequences[to_size(layer)];
  at::Tensor columns = z.contiguous();
  if (exact_.group > 1) columns = without_starts(columns, counts.size());
  std::vector<std::int64_t> first_rows(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), first_rows.begin(), std::int64_t{0});
  for_each_in_parallel(counts.size(), [&](std::size_t s) {
    CachedSequence& cached = sequences[s];
    const TokenSplit past = split_tokens(exact_, lengths()[s]),
                     all = split_tokens(exact_, lengths()[s] + counts[s]);
    const std::int64_t row = first_rows[s], exact = all.exact - past.exact;
    if (exact > 0) {
      const at::Tensor first = x.narrow(0, row, exact).to(plain_);
      cached.exact = cached.exact.defined() ? at::cat({cached.exact, first}) : first.clone();
    }
    keep(x, starts().new_rows(s), plain_, cached.starts);
    const auto append_from = [&](const auto* rows) {
      append_rows(cached.pages, shard_of(s), past.stored, all.stored, rows + (row + exact) * columns.size(1));
    };
    compute_ == at::kDouble ? append_from(columns.data_ptr<double>())
                            : append_from(columns.data_ptr<float>());
  });
}

/// Returns the columns with 0 for tokens that begin a document, which then have no part in the scales of
/// their group.
at::Tensor PagedCache::without_starts(const at::Tensor& columns, std::size_t sequences) const {
  std::vector<std::int64_t> rows;
  for (std::size_t s = 0; s < sequences; ++s)
    rows.insert(rows.end(), starts().new_rows(s).begin(), starts().new_rows(s).end());
  return rows.empty() ? columns : columns.index_fill(0, at::tensor(rows, at::kLong), 0);
}

/// Returns the view of one sequence, without recent tokens.
StreamView PagedCache::view(const StreamCache& cache, std::int64_t layer, std::size_t sequence) const {
  StreamView view{&(*cache.layers)[to_size(layer)], {}, {}, {}, 0, exact_, {}, {}};
  for (const StoredSlice& slice : view.layer->slices)
    view.pages.push_back(&cache.sequences[to_size(slice.layer)][sequence].pages);
  const at::Tensor& exact = cache.sequences[to_size(layer)][sequence].exact;
  if (exact.defined()) view.exact = exact.to(compute_);
  const at::Tensor& starts_here = cache.sequences[to_size(layer)][sequence].starts;
  if (starts_here.defined()) {
    view.starts = starts_here.to(compute_);
    view.start_tokens = starts().positions(sequence);
  }
  return view;
}

/// Returns the views of all sequences, with recent tokens up to and including the new ones, x. Keeps the last
/// of these for the next step.
std::vector<StreamView> PagedCache::views_with_recent(StreamCache& cache, std::int64_t layer,
                                                      const at::Tensor& x,
                                                      const std::vector<std::int64_t>& counts) const {
  std::vector<StreamView> views;
  std::int64_t row = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    views.push_back(view(cache, layer, s));
    if (exact_.keeps_recent() && counts[s] > 0) {
      at::Tensor& kept = cache.sequences[to_size(layer)][s].recent;
      at::Tensor recent = x.narrow(0, row, counts[s]);
      if (kept.defined()) recent = at::cat({kept, recent});
      views.back().recent = recent.to(compute_);
      views.back().recent_begin = lengths()[s] + counts[s] - recent.size(0);
      const std::int64_t last = std::min(recent.size(0), exact_.kept_recent());
      kept = recent.narrow(0, recent.size(0) - last, last).clone();
    }
    row += counts[s];
  }
  return views;
}

void PagedCache::keep_recent(std::int64_t layer, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<std::int64_t>& counts) {
  views_with_recent(keys_, layer, k, counts);
  views_with_recent(values_, layer, v, counts);
}

void PagedCache::rewind() {
  StoringCache::rewind();
  for (StreamCache* cache : {&keys_, &values_})
    for (auto& layer : cache->sequences)
      for (CachedSequence& sequence : layer) sequence.recent.reset();
}

at::Tensor PagedCache::attend_stored(std::int64_t layer, const at::Tensor& q, const at::Tensor& k,
                                     const at::Tensor& v, const std::vector<std::int64_t>& counts) {
  const std::vector<StreamView> keys = views_with_recent(keys_, layer, k, counts),
                                values = views_with_recent(values_, layer, v, counts);
  return plan_.shared == SharedBlocks::sharded ? attend_sharded(q, keys, values, counts)
                                               : attend_replicated(q, keys, values, counts);
}

at::Tensor PagedCache::attend_replicated(const at::Tensor& q, const std::vector<StreamView>& keys,
                                         const std::vector<StreamView>& values,
                                         const std::vector<std::int64_t>& counts) const {
  const PartialAttention whole{at::empty_like(q), {}};
  const std::vector<Task> tasks = make_tasks(lengths(), counts);
  if (is_step(q, counts, keys.front().layer->kv_heads)) {
    std::vector<std::int64_t> seen;
    seen.reserve(tasks.size());
    for (const Task& task : tasks) seen.push_back(task.position + 1);
    attend_step(q, seen, keys, values, whole);
    return whole.values;
  }
  for_each_task(tasks, [&](const Task& task) {
    StreamView task_keys = keys[task.sequence], task_values = values[task.sequence];
    narrow_recent(task, task_keys);
    narrow_recent(task, task_values);
    std::vector<std::int64_t> seen(to_size(task.count));
    std::iota(seen.begin(), seen.end(), task.position + 1);
    attend_pages(q.narrow(0, task.row, task.count), seen, task_keys, task_values,
                 whole.queries(task.row, task.count));
  });
  return whole.values;
}

at::Tensor PagedCache::attend_sharded(const at::Tensor& q, const std::vector<StreamView>& keys,
                                      const std::vector<StreamView>& values,
                                      const std::vector<std::int64_t>& counts) const {
  const at::Tensor all = gather_queries(tensor_parallel_, q);
  const PartialAttention stored = PartialAttention::none(all);
  const bool has_exact = exact_.first > 0 || exact_.recent > 0;
  const PartialAttention exact = has_exact ? PartialAttention::none(q) : PartialAttention();
  std::vector<StreamView> stored_keys = stored_only(keys), stored_values = stored_only(values);
  for (std::size_t s = 0; s < stored_keys.size(); ++s)
    for (const std::int64_t token : starts().positions(s))
      shard_of(s).for_each_run(token - exact_.first, token - exact_.first + 1, [&](std::int64_t first, auto) {
        stored_keys[s].start_tokens.push_back(shard_of(s).count(first));
      });
  const std::vector<Task> tasks = make_tasks(lengths(), counts);
  const auto seen_of = [&](const Task& task) {
    std::vector<std::int64_t> seen;
    for (std::int64_t position = task.position; position < task.position + task.count; ++position)
      seen.push_back(shard_of(task.sequence).count(split_tokens(exact_, position + 1).far));
    return seen;
  };
  const bool step = is_step(all, counts, keys.front().layer->kv_heads);
  for_each_task(tasks, [&](const Task& task) {
    StreamView task_keys = keys[task.sequence], task_values = values[task.sequence];
    narrow_recent(task, task_keys);
    narrow_recent(task, task_values);
    if (has_exact)
      attend_exact(q.narrow(0, task.row, task.count), task.position, task_keys, task_values,
                   exact.queries(task.row, task.count));
    const std::vector<std::int64_t> seen = seen_of(task);
    if (!step && seen.back() > 0)
      attend_pages(all.narrow(0, task.row, task.count), seen, stored_keys[task.sequence],
                   stored_values[task.sequence], stored.queries(task.row, task.count));
  });
  if (step) {
    std::vector<std::int64_t> seen;
    seen.reserve(tasks.size());
    for (const Task& task : tasks) seen.push_back(seen_of(task).front());
    attend_step(all, seen, stored_keys, stored_values, stored);
  }
  return join_attention(tensor_parallel_, stored, exact);
}

/// Returns stored tokens begin .. end as the plan reconstructs them, and those that begin a document as they
/// are: [tokens, kv_heads, d].
at::Tensor PagedCache::decode(const StreamView& view, std::int64_t begin, std::int64_t end) const {
  const at::Tensor out = decode_pages(view, plan_.head_size, begin, end, compute_);
  for (std::size_t i = 0; i < view.start_tokens.size(); ++i) {
    const std::int64_t token = view.start_tokens[i] - exact_.first;
    if (token >= begin && token < end) out[token - begin].copy_(view.starts[static_cast<std::int64_t>(i)]);
  }
  return out;
}

at::Tensor PagedCache::decode_appended(Stream stream, std::int64_t layer,
                                       const std::vector<std::int64_t>& counts) {
  HS_ASSERT(plan_.shared == SharedBlocks::replicated);
  const StreamCache& cache = stream_cache(stream);
  std::vector<at::Tensor> parts;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    const StreamView blocks = view(cache, layer, s);
    const TokenSplit past = split_tokens(exact_, lengths()[s]),
                     all = split_tokens(exact_, lengths()[s] + counts[s]);
    if (all.exact > past.exact) parts.push_back(blocks.exact.narrow(0, past.exact, all.exact - past.exact));
    parts.push_back(decode(blocks, past.stored, all.stored));
  }
  return at::cat(parts);
}

at::Tensor PagedCache::decode_groups(Stream stream, std::int64_t layer,
                                     const std::vector<std::int64_t>& counts) {
  std::vector<at::Tensor> parts;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    const Range completed = completed_groups(exact_, lengths()[s], counts[s]);
    parts.push_back(
        decode(view(stream_cache(stream), layer, s), completed.first, completed.first + completed.count));
  }
  return at::cat(parts);
}

void PagedCache::rewrite_groups(Stream stream, std::int64_t layer, const at::Tensor& x,
                                const std::vector<std::int64_t>& counts) {
  const at::Tensor rows = x.to(compute_).contiguous();
  std::int64_t row = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    const Range completed = completed_groups(exact_, lengths()[s], counts[s]);
    BlockPages& pages = stream_cache(stream).sequences[to_size(layer)][s].pages;
    const auto rewrite = [&](const auto* values) {
      pages.rewrite(completed.first, values + row * x.size(1) * x.size(2), completed.count);
    };
    compute_ == at::kDouble ? rewrite(rows.data_ptr<double>()) : rewrite(rows.data_ptr<float>());
    row += completed.count;
  }
}

CacheBytes PagedCache::bytes() const {
  CacheBytes bytes;
  for (const StreamCache* cache : {&keys_, &values_})
    for (const auto& layer : cache->sequences)
      for (const CachedSequence& sequence : layer) {
        bytes.stored += sequence.pages.allocated_bytes();
        for (const at::Tensor* kept : {&sequence.exact, &sequence.recent, &sequence.starts})
          count_exact(*kept, cache == &keys_ && &layer == &cache->sequences.front(), bytes);
      }
  return bytes;
}

}  // namespace headspan
