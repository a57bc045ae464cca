#include "model/cache/page_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include <ATen/ATen.h>

#include "base/checked.h"
#include "model/cache/page_spans.h"
#include "model/kernels/row_kernels.h"

namespace headspan {
namespace {

template <class T>
at::Tensor columns_of(const TokenSpan<T>& z, const HeadDecoder& decoder) {
  return at::from_blob(const_cast<T*>(z.values) + decoder.first, {z.tokens, decoder.count}, {z.leading, 1},
                       at::CppTypeToScalarType<T>::value);
}

/// Returns the rows of a decoder's heads in x: [heads, rows, width], as [heads of the decoder * rows, width].
at::Tensor rows_of(const at::Tensor& x, const HeadDecoder& decoder) {
  const auto count = static_cast<std::int64_t>(decoder.heads.size());
  if (decoder.heads.back() - decoder.heads.front() + 1 == count)
    return x.narrow(0, decoder.heads.front(), count).flatten(0, 1);
  return x.index_select(0, at::tensor(decoder.heads, at::kLong)).flatten(0, 1);
}

/// Adds `values`: [heads of the decoder * rows, width], to those heads of x: [heads, rows, width].
void add_rows(const at::Tensor& x, const HeadDecoder& decoder, const at::Tensor& values) {
  const at::Tensor by_head = values.view({-1, x.size(1), x.size(2)});
  for_each_run(decoder, [&](std::int64_t index, std::int64_t head, std::int64_t count) {
    x.narrow(0, head, count).add_(by_head.narrow(0, index, count));
  });
}

bool reads_all(const HeadDecoder& decoder, const at::Tensor& x) {
  return static_cast<std::int64_t>(decoder.heads.size()) == x.size(0);
}

/// Adds the products of absorbed queries: [heads of the decoder * rows, count] to scores: [heads, rows,
/// tokens].
template <class T>
void add_product(const at::Tensor& scores, const HeadDecoder& decoder, const at::Tensor& absorbed,
                 const TokenSpan<T>& z) {
  const at::Tensor part = scores.narrow(2, z.token, z.tokens);
  const at::Tensor columns = columns_of(z, decoder).t();
  if (reads_all(decoder, part))
    part.view({-1, z.tokens}).addmm_(absorbed, columns);
  else if (decoder.heads.size() == 1)
    part.select(0, decoder.heads[0]).addmm_(absorbed, columns);
  else
    add_rows(part, decoder, at::mm(absorbed, columns));
}

/// Adds the scores of q: [heads, rows, d] to scores: [heads, rows, stored tokens], a part of a larger matrix.
template <class T>
void add_scores(const at::Tensor& scores, const at::Tensor& q, const StreamView& keys) {
  for (std::size_t s = 0; s < keys.layer->slices.size(); ++s) {
    const StoredSlice& slice = keys.layer->slices[s];
    std::vector<at::Tensor> absorbed;
    for (const HeadDecoder& decoder : slice.decoders) {
      at::Tensor rows = rows_of(q, decoder);
      if (decoder.matrix.defined())
        rows = at::bmm(rows.view({static_cast<std::int64_t>(decoder.heads.size()), q.size(1), q.size(2)}),
                       decoder.matrix.transpose(1, 2))
                   .flatten(0, 1);
      absorbed.push_back(rows);
    }
    for_each_page_span<T>(slice, *keys.pages[s], 0, scores.size(2), [&](const TokenSpan<T>& z) {
      for (std::size_t i = 0; i < absorbed.size(); ++i)
        add_product(scores, slice.decoders[i], absorbed[i], z);
    });
  }
}

/// Adds the columns weighted by weights: [heads, rows, tokens] to gathered: [heads of the decoder * rows,
/// count].
template <class T>
void gather(const at::Tensor& gathered, const HeadDecoder& decoder, const at::Tensor& weights,
            const TokenSpan<T>& z) {
  const at::Tensor part = weights.narrow(2, z.token, z.tokens);
  const at::Tensor rows = reads_all(decoder, part) ? part.view({-1, z.tokens}) : rows_of(part, decoder);
  gathered.addmm_(rows, columns_of(z, decoder));
}

/// Adds the stored values weighted by weights: [heads, rows, stored tokens] to out: [heads, rows, d].
template <class T>
void add_values(const at::Tensor& out, const at::Tensor& weights, const StreamView& values) {
  const std::int64_t rows = weights.size(1);
  for (std::size_t s = 0; s < values.layer->slices.size(); ++s) {
    const StoredSlice& slice = values.layer->slices[s];
    std::vector<at::Tensor> gathered;
    for (const HeadDecoder& decoder : slice.decoders)
      gathered.push_back(
          at::zeros({static_cast<std::int64_t>(decoder.heads.size()) * rows, decoder.count}, out.options()));
    for_each_page_span<T>(slice, *values.pages[s], 0, weights.size(2), [&](const TokenSpan<T>& z) {
      for (std::size_t i = 0; i < gathered.size(); ++i) gather(gathered[i], slice.decoders[i], weights, z);
    });
    for (std::size_t i = 0; i < gathered.size(); ++i) {
      const HeadDecoder& decoder = slice.decoders[i];
      at::Tensor reconstructed = gathered[i];
      if (decoder.matrix.defined())
        reconstructed =
            at::bmm(gathered[i].view({static_cast<std::int64_t>(decoder.heads.size()), rows, decoder.count}),
                    decoder.matrix)
                .flatten(0, 1);
      add_rows(out, decoder, reconstructed);
    }
  }
}

/// Replaces scores by weights. Row (group, i) of a head sees the first seen[i] tokens, of which it reads
/// those that the rule says; others get weight zero. Returns the logarithms of the sums of exp(score):
/// [heads, rows].
template <class T>
at::Tensor softmax_causal(const at::Tensor& scores, const std::vector<std::int64_t>& seen,
                          const AttentionRule& rule) {
  if (rule.softcap > 0) scores.div_(rule.softcap).tanh_().mul_(rule.softcap);
  const std::int64_t keys = scores.size(2), rows = scores.size(0) * scores.size(1);
  at::Tensor log_sum = at::empty({scores.size(0), scores.size(1)}, scores.options());
  T* row = scores.data_ptr<T>();
  for (std::int64_t r = 0; r < rows; ++r, row += keys) {
    const std::int64_t count = seen[static_cast<std::size_t>(r) % seen.size()];
    const std::int64_t first = rule.first(count);
    std::fill(row, row + first, T{0});
    log_sum.data_ptr<T>()[r] = softmax_row(row + first, count - first);
    std::fill(row + count, row + keys, T{0});
  }
  return log_sum;
}

/// Returns q: [tokens, heads, d], scaled, by KV head: [kv_heads, rows, d] with rows (group, query).
at::Tensor rows_by_kv_head(const at::Tensor& q, std::int64_t kv_heads) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(2)));
  return (q.view({q.size(0), kv_heads, -1, q.size(2)}).permute({1, 2, 0, 3}) * scale)
      .reshape({kv_heads, -1, q.size(2)});
}

/// Writes values: [kv_heads, rows, d] and log_sum: [kv_heads, rows] to `out`, which is ordered by token.
void write_by_token(const at::Tensor& values, const at::Tensor& log_sum, const PartialAttention& out) {
  const std::int64_t tokens = out.values.size(0), kv_heads = values.size(0), d = values.size(2);
  out.values.view({tokens, kv_heads, -1, d})
      .copy_(values.view({kv_heads, -1, tokens, d}).permute({2, 0, 1, 3}));
  if (out.log_sum.defined())
    out.log_sum.view({tokens, kv_heads, -1}).copy_(log_sum.view({kv_heads, -1, tokens}).permute({2, 0, 1}));
}

/// Makes queries read recent tokens and those that begin a document as they are, not as they are stored.
class KeptTokens {
 public:
  /// Scores and weights are [kv_heads, rows, tokens]; row r belongs to query r % queries.
  KeptTokens(const StreamView& keys, const StreamView& values, const std::vector<std::int64_t>& seen)
      : keys_(keys), values_(values) {
    const auto& starts = keys.start_tokens;
    starts_ = std::lower_bound(starts.begin(), starts.end(), seen.back()) - starts.begin();
    if (starts_ > 0) start_tokens_ = at::tensor(at::IntArrayRef(starts.data(), to_size(starts_)), at::kLong);
    if (!keys.recent.defined()) return;
    const at::Tensor token = at::arange(keys.recent.size(0), at::kLong) + keys.recent_begin;
    std::vector<std::int64_t> begins;
    for (const std::int64_t tokens : seen) begins.push_back(split_tokens(keys.kept, tokens).recent_begin);
    near_ = token.ge(at::tensor(begins, at::kLong).unsqueeze(1));
  }

  void replace_scores(const at::Tensor& scores, const at::Tensor& rows) const {
    if (starts_ > 0 && keys_.starts.defined())
      scores.index_copy_(2, start_tokens_,
                         at::bmm(rows, keys_.starts.narrow(0, 0, starts_).permute({1, 2, 0})));
    else if (starts_ > 0)
      scores.index_fill_(2, start_tokens_, -std::numeric_limits<double>::infinity());
    if (!near_.defined()) return;
    const at::Tensor part = scores.narrow(2, keys_.recent_begin, keys_.recent.size(0));
    part.copy_(at::where(by_row(scores), at::bmm(rows, keys_.recent.permute({1, 2, 0})), part));
  }

  /// Adds their weighted values to out: [kv_heads, rows, d], and sets their weights to zero.
  void add_values(const at::Tensor& weights, const at::Tensor& out) const {
    if (near_.defined()) {
      const at::Tensor part = weights.narrow(2, keys_.recent_begin, keys_.recent.size(0));
      const at::Tensor near = part * by_row(weights);
      out.add_(at::bmm(near, values_.recent.transpose(0, 1)));
      part.sub_(near);
    }
    if (starts_ == 0 || !keys_.starts.defined()) return;
    out.add_(at::bmm(weights.index_select(2, start_tokens_),
                     values_.starts.narrow(0, 0, starts_).transpose(0, 1)));
    weights.index_fill_(2, start_tokens_, 0);
  }

 private:
  at::Tensor by_row(const at::Tensor& scores) const {
    return near_.repeat({scores.size(1) / near_.size(0), 1}).unsqueeze(0);
  }

  const StreamView& keys_;
  const StreamView& values_;
  at::Tensor near_;          // [queries, recent tokens]: which of them a query reads as they are
  std::int64_t starts_ = 0;  // how many tokens that begin a document the last query sees
  at::Tensor start_tokens_;  // [starts_]
};

template <class T>
void attend(const at::Tensor& queries, const std::vector<std::int64_t>& seen, const StreamView& keys,
            const StreamView& values, const PartialAttention& part) {
  const std::int64_t total = seen.back(), kv_heads = keys.layer->kv_heads;
  const std::int64_t exact = split_tokens(keys.kept, total).exact;
  const at::Tensor rows = rows_by_kv_head(queries, kv_heads);
  at::Tensor scores = at::empty({kv_heads, rows.size(1), total}, rows.options());
  const at::Tensor stored = scores.narrow(2, exact, total - exact);
  if (exact > 0)
    scores.narrow(2, 0, exact).copy_(at::bmm(rows, keys.exact.narrow(0, 0, exact).permute({1, 2, 0})));
  if (keys.layer->bias.defined())
    stored.copy_(at::bmm(rows, keys.layer->bias.transpose(1, 2)).expand_as(stored));
  else
    stored.zero_();
  add_scores<T>(stored, rows, keys);
  const KeptTokens kept(keys, values, seen);
  kept.replace_scores(scores, rows);
  const at::Tensor log_sum = softmax_causal<T>(scores, seen, keys.layer->attention);
  at::Tensor out = at::zeros_like(rows);
  kept.add_values(scores, out);
  if (exact > 0)
    out.add_(at::bmm(scores.narrow(2, 0, exact), values.exact.narrow(0, 0, exact).transpose(0, 1)));
  if (values.layer->bias.defined())
    out.addcmul_(stored.sum(2, true).expand_as(out), values.layer->bias.expand_as(out));
  add_values<T>(out, stored, values);
  write_by_token(out, log_sum, part);
}

template <class T>
at::Tensor decode(const StreamView& view, std::int64_t d, std::int64_t begin, std::int64_t end) {
  const auto type = at::dtype(at::CppTypeToScalarType<T>::value);
  at::Tensor out = at::zeros({view.layer->kv_heads, end - begin, d}, type);
  if (view.layer->bias.defined()) out.add_(view.layer->bias);
  for (std::size_t s = 0; s < view.layer->slices.size(); ++s) {
    const StoredSlice& slice = view.layer->slices[s];
    for_each_page_span<T>(slice, *view.pages[s], begin, end, [&](const TokenSpan<T>& z) {
      const at::Tensor part = out.narrow(1, z.token - begin, z.tokens);
      for (const HeadDecoder& decoder : slice.decoders) {
        const at::Tensor columns = columns_of(z, decoder);
        for (std::size_t i = 0; i < decoder.heads.size(); ++i)
          part.select(0, decoder.heads[i])
              .add_(decoder.matrix.defined() ? at::mm(columns, decoder.matrix[static_cast<std::int64_t>(i)])
                                             : columns);
      }
    });
  }
  return out.transpose(0, 1).contiguous();
}

}  // namespace

void attend_pages(const at::Tensor& q, const std::vector<std::int64_t>& seen, const StreamView& keys,
                  const StreamView& values, const PartialAttention& out) {
  q.scalar_type() == at::kDouble ? attend<double>(q, seen, keys, values, out)
                                 : attend<float>(q, seen, keys, values, out);
}

void attend_exact(const at::Tensor& q, std::int64_t position, const StreamView& keys,
                  const StreamView& values, const PartialAttention& out) {
  std::vector<at::Tensor> exact_keys, exact_values, tokens;
  const std::int64_t first = keys.exact.defined() ? keys.exact.size(0) : 0,
                     starts = keys.starts.defined() ? keys.starts.size(0) : 0, recent = keys.kept.recent;
  if (first > 0) {
    exact_keys.push_back(keys.exact);
    exact_values.push_back(values.exact);
    tokens.push_back(at::arange(first, at::kLong));
  }
  const std::int64_t begin = std::max(first, keys.recent_begin), end = position + q.size(0);
  if (starts > 0) {
    exact_keys.push_back(keys.starts);
    exact_values.push_back(values.starts);
    tokens.push_back(at::tensor(keys.start_tokens, at::kLong));
  }
  if (keys.recent.defined() && begin < end) {
    exact_keys.push_back(keys.recent.narrow(0, begin - keys.recent_begin, end - begin));
    exact_values.push_back(values.recent.narrow(0, begin - keys.recent_begin, end - begin));
    tokens.push_back(at::arange(begin, end, at::kLong));
  }
  const at::Tensor k = at::cat(exact_keys).permute({1, 2, 0}), v = at::cat(exact_values).transpose(0, 1);
  const at::Tensor behind = at::arange(position, end, at::kLong).unsqueeze(1) - at::cat(tokens);
  const at::Tensor seen = behind.ge(0);  // [queries, tokens]
  const auto restrict = [&](std::int64_t begin_column, std::int64_t count, bool to_recent) {
    const at::Tensor near = behind.narrow(1, begin_column, count).lt(recent);
    seen.narrow(1, begin_column, count).logical_and_(to_recent ? near : near.logical_not());
  };
  restrict(first, starts, false);
  restrict(first + starts, behind.size(1) - first - starts, true);
  const at::Tensor rows = rows_by_kv_head(q, k.size(0));
  const at::Tensor hidden = seen.logical_not().repeat({rows.size(1) / q.size(0), 1});
  const at::Tensor scores = at::bmm(rows, k).masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  const at::Tensor log_sum = at::logsumexp(scores, {2}, true);
  write_by_token(at::bmm((scores - log_sum).exp_(), v), log_sum.squeeze(2), out);
}

at::Tensor decode_pages(const StreamView& view, std::int64_t d, std::int64_t begin, std::int64_t end,
                        at::ScalarType dtype) {
  return dtype == at::kDouble ? decode<double>(view, d, begin, end) : decode<float>(view, d, begin, end);
}

}  // namespace headspan
