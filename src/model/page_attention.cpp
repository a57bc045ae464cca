#include "model/page_attention.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>

#include "base/error.h"
#include "model/row_kernels.h"
#include "model/stretch.h"

namespace headspan {
namespace {

template <class T>
at::Tensor columns_of(const Stretch<T>& z, const Reader& reader) {
  return at::from_blob(const_cast<T*>(z.values) + reader.first, {z.tokens, reader.count}, {z.leading, 1},
                       at::CppTypeToScalarType<T>::value);
}

/// The rows of some heads of x: [heads, rows, width], as [heads of the reader * rows, width].
at::Tensor rows_of(const at::Tensor& x, const Reader& reader) {
  const auto count = static_cast<std::int64_t>(reader.heads.size());
  if (reader.heads.back() - reader.heads.front() + 1 == count)
    return x.narrow(0, reader.heads.front(), count).flatten(0, 1);
  return x.index_select(0, at::tensor(reader.heads, at::kLong)).flatten(0, 1);
}

/// Adds `values`: [heads of the reader * rows, width], to those heads of x: [heads, rows, width].
void add_rows(const at::Tensor& x, const Reader& reader, const at::Tensor& values) {
  const at::Tensor by_head = values.view({-1, x.size(1), x.size(2)});
  for_each_run(reader, [&](std::int64_t place, std::int64_t head, std::int64_t count) {
    x.narrow(0, head, count).add_(by_head.narrow(0, place, count));
  });
}

bool reads_all(const Reader& reader, const at::Tensor& x) {
  return static_cast<std::int64_t>(reader.heads.size()) == x.size(0);
}

/// Adds to scores: [heads, rows, tokens], what folded queries: [heads of the reader * rows, count], meet.
template <class T>
void add_product(const at::Tensor& scores, const Reader& reader, const at::Tensor& folded,
                 const Stretch<T>& z) {
  const at::Tensor part = scores.narrow(2, z.token, z.tokens);
  const at::Tensor columns = columns_of(z, reader).t();
  if (reads_all(reader, part))
    part.view({-1, z.tokens}).addmm_(folded, columns);
  else if (reader.heads.size() == 1)
    part.select(0, reader.heads[0]).addmm_(folded, columns);
  else
    add_rows(part, reader, at::mm(folded, columns));
}

/// scores: [heads, rows, stored tokens], a part of a larger matrix; q: [heads, rows, d].
template <class T>
void add_scores(const at::Tensor& scores, const at::Tensor& q, const StreamView& keys) {
  for (std::size_t s = 0; s < keys.layer->sources.size(); ++s) {
    const Source& source = keys.layer->sources[s];
    std::vector<at::Tensor> folded;
    for (const Reader& reader : source.readers) {
      at::Tensor rows = rows_of(q, reader);
      if (reader.matrix.defined())
        rows = at::bmm(rows.view({static_cast<std::int64_t>(reader.heads.size()), q.size(1), q.size(2)}),
                       reader.matrix.transpose(1, 2))
                   .flatten(0, 1);
      folded.push_back(rows);
    }
    for_each_stretch<T>(source, *keys.pages[s], 0, scores.size(2), [&](const Stretch<T>& z) {
      for (std::size_t i = 0; i < folded.size(); ++i) add_product(scores, source.readers[i], folded[i], z);
    });
  }
}

/// Adds to gathered: [heads of the reader * rows, count] what weights: [heads, rows, tokens] gather.
template <class T>
void gather(const at::Tensor& gathered, const Reader& reader, const at::Tensor& weights,
            const Stretch<T>& z) {
  const at::Tensor part = weights.narrow(2, z.token, z.tokens);
  const at::Tensor own = reads_all(reader, part) ? part.view({-1, z.tokens}) : rows_of(part, reader);
  gathered.addmm_(own, columns_of(z, reader));
}

/// Adds to out: [heads, rows, d] what weights: [heads, rows, stored tokens] gather of the stored values.
template <class T>
void add_values(const at::Tensor& out, const at::Tensor& weights, const StreamView& values) {
  const std::int64_t rows = weights.size(1);
  for (std::size_t s = 0; s < values.layer->sources.size(); ++s) {
    const Source& source = values.layer->sources[s];
    std::vector<at::Tensor> gathered;
    for (const Reader& reader : source.readers)
      gathered.push_back(
          at::zeros({static_cast<std::int64_t>(reader.heads.size()) * rows, reader.count}, out.options()));
    for_each_stretch<T>(source, *values.pages[s], 0, weights.size(2), [&](const Stretch<T>& z) {
      for (std::size_t i = 0; i < gathered.size(); ++i) gather(gathered[i], source.readers[i], weights, z);
    });
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      const Reader& reader = source.readers[i];
      at::Tensor lifted = gathered[i];
      if (reader.matrix.defined())
        lifted = at::bmm(lifted.view({static_cast<std::int64_t>(reader.heads.size()), rows, reader.count}),
                         reader.matrix)
                     .flatten(0, 1);
      add_rows(out, reader, lifted);
    }
  }
}

/// Row (group, i) of a head sees the tokens up to position + i; the others get zero.
template <class T>
void softmax_causal(const at::Tensor& scores, std::int64_t position, std::int64_t queries) {
  const std::int64_t keys = scores.size(2), rows = scores.size(0) * scores.size(1);
  T* row = scores.data_ptr<T>();
  for (std::int64_t r = 0; r < rows; ++r, row += keys) {
    const std::int64_t seen = position + r % queries + 1;
    softmax_row(row, seen);
    std::fill(row + seen, row + keys, T{0});
  }
}

/// Recent tokens in place of what is stored of them.
class RecentTokens {
 public:
  /// Scores: [kv heads, rows, tokens], row r of query r % queries.
  RecentTokens(const StreamView& keys, const StreamView& values, std::int64_t position, std::int64_t queries)
      : keys_(keys), values_(values) {
    if (!keys.recent.defined()) return;
    const at::Tensor token = at::arange(keys.recent.size(0), at::kLong) + keys.recent_begin;
    const at::Tensor query = at::arange(queries, at::kLong).unsqueeze(1) + position;
    near_ = (query - token).lt(keys.exact_recent);
  }

  void replace_scores(const at::Tensor& scores, const at::Tensor& rows) const {
    if (!near_.defined()) return;
    const at::Tensor part = scores.narrow(2, keys_.recent_begin, keys_.recent.size(0));
    part.copy_(at::where(by_row(scores), at::bmm(rows, keys_.recent.permute({1, 2, 0})), part));
  }

  /// Adds what the weights gather of recent values to out: [kv heads, rows, d], and takes them away.
  void add_values(const at::Tensor& weights, const at::Tensor& out) const {
    if (!near_.defined()) return;
    const at::Tensor part = weights.narrow(2, keys_.recent_begin, keys_.recent.size(0));
    const at::Tensor own = part * by_row(weights);
    out.add_(at::bmm(own, values_.recent.transpose(0, 1)));
    part.sub_(own);
  }

 private:
  at::Tensor by_row(const at::Tensor& scores) const {
    return near_.repeat({scores.size(1) / near_.size(0), 1}).unsqueeze(0);
  }

  const StreamView& keys_;
  const StreamView& values_;
  at::Tensor near_;  // [queries, recent tokens]
};

template <class T>
at::Tensor attend(const at::Tensor& queries, std::int64_t position, const StreamView& keys,
                  const StreamView& values) {
  const std::int64_t count = queries.size(0), total = position + count;
  const std::int64_t exact = keys.exact.defined() ? std::min(keys.exact.size(0), total) : 0;
  const std::int64_t kv_heads = keys.layer->kv_heads, d = queries.size(2);
  const double scale = 1 / std::sqrt(static_cast<double>(d));
  const at::Tensor rows =
      (queries.view({count, kv_heads, -1, d}).permute({1, 2, 0, 3}) * scale).reshape({kv_heads, -1, d});
  at::Tensor scores = at::empty({kv_heads, rows.size(1), total}, rows.options());
  const at::Tensor stored = scores.narrow(2, exact, total - exact);
  if (exact > 0)
    scores.narrow(2, 0, exact).copy_(at::bmm(rows, keys.exact.narrow(0, 0, exact).permute({1, 2, 0})));
  if (keys.layer->bias.defined())
    stored.copy_(at::bmm(rows, keys.layer->bias.transpose(1, 2)).expand_as(stored));
  else
    stored.zero_();
  add_scores<T>(stored, rows, keys);
  const RecentTokens recent(keys, values, position, count);
  recent.replace_scores(scores, rows);
  softmax_causal<T>(scores, position, count);
  at::Tensor out = at::zeros_like(rows);
  recent.add_values(scores, out);
  if (exact > 0)
    out.add_(at::bmm(scores.narrow(2, 0, exact), values.exact.narrow(0, 0, exact).transpose(0, 1)));
  if (values.layer->bias.defined())
    out.addcmul_(stored.sum(2, true).expand_as(out), values.layer->bias.expand_as(out));
  add_values<T>(out, stored, values);
  return out.view({kv_heads, -1, count, d}).permute({2, 0, 1, 3}).reshape({count, -1, d});
}

template <class T>
at::Tensor lift(const StreamView& view, std::int64_t kv_heads, std::int64_t d, std::int64_t begin,
                std::int64_t end) {
  const auto type = at::dtype(at::CppTypeToScalarType<T>::value);
  at::Tensor out = at::zeros({kv_heads, end - begin, d}, type);
  if (view.layer->bias.defined()) out.add_(view.layer->bias);
  for (std::size_t s = 0; s < view.layer->sources.size(); ++s) {
    const Source& source = view.layer->sources[s];
    for_each_stretch<T>(source, *view.pages[s], begin, end, [&](const Stretch<T>& z) {
      const at::Tensor part = out.narrow(1, z.token - begin, z.tokens);
      for (const Reader& reader : source.readers) {
        const at::Tensor columns = columns_of(z, reader);
        for (std::size_t i = 0; i < reader.heads.size(); ++i)
          part.select(0, reader.heads[i])
              .add_(reader.matrix.defined() ? at::mm(columns, reader.matrix[static_cast<std::int64_t>(i)])
                                            : columns);
      }
    });
  }
  return out.transpose(0, 1).contiguous();
}

}  // namespace

at::Tensor attend_pages(const at::Tensor& q, std::int64_t position, const StreamView& keys,
                        const StreamView& values) {
  return q.scalar_type() == at::kDouble ? attend<double>(q, position, keys, values)
                                        : attend<float>(q, position, keys, values);
}

at::Tensor lift_pages(const StreamView& view, std::int64_t kv_heads, std::int64_t d, std::int64_t begin,
                      std::int64_t end, at::ScalarType dtype) {
  return dtype == at::kDouble ? lift<double>(view, kv_heads, d, begin, end)
                              : lift<float>(view, kv_heads, d, begin, end);
}

}  // namespace headspan
