#include "model/device_cache/device_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <torch/version.h>

namespace headspan {
namespace {

constexpr std::int64_t kChunkBytes = 64 << 20;  // stored numbers that are unpacked at a time

/// The columns of scores, in order: exact first tokens, stored ones, recent ones, those that begin a
/// document.
struct Columns {
  std::int64_t exact = 0, stored = 0, recent = 0, starts = 0;

  std::int64_t all() const { return exact + stored + recent + starts; }
  at::Tensor exact_of(const at::Tensor& x) const { return x.narrow(3, 0, exact); }
  at::Tensor stored_of(const at::Tensor& x) const { return x.narrow(3, exact, stored); }
  at::Tensor recent_of(const at::Tensor& x) const { return x.narrow(3, exact + stored, recent); }
  at::Tensor starts_of(const at::Tensor& x) const { return x.narrow(3, exact + stored + recent, starts); }
};

Columns columns_of(const QueryBlock& queries, const DeviceView& keys, const ExactTokens& exact) {
  const TokenSplit split = split_tokens(exact, queries.tokens);
  const auto count = [](const at::Tensor& tokens) { return tokens.defined() ? tokens.size(1) : 0; };
  return {split.exact, split.stored, count(keys.recent), count(keys.starts)};
}

/// Returns a: [batch, m, k] times b: [batch, k, n]. For bfloat16 the sums and the result are float32.
at::Tensor wide_product(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != at::kBFloat16) return at::bmm(a, b);
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 8)
  if (!a.is_cpu()) return at::bmm(a, b, at::kFloat);
#endif
  return at::bmm(a.to(at::kFloat), b.to(at::kFloat));
}

/// Returns x: [sequences, heads, rows, a] times maps: [heads, a, b], as [sequences, heads * rows, b].
at::Tensor by_head(const at::Tensor& x, const at::Tensor& maps) {
  const std::int64_t sequences = x.size(0), rows = x.size(2);
  return at::bmm(x.transpose(0, 1).flatten(1, 2), maps)
      .view({x.size(1), sequences, rows, maps.size(2)})
      .transpose(0, 1)
      .flatten(1, 2);
}

/// Returns queries by KV head: [sequences, kv_heads, group * queries, d].
at::Tensor rows_of(const at::Tensor& q, std::int64_t kv_heads) {
  const std::int64_t sequences = q.size(0), d = q.size(3);
  return q.view({sequences, q.size(1), kv_heads, -1, d})
      .permute({0, 2, 3, 1, 4})
      .reshape({sequences, kv_heads, -1, d});
}

/// Undoes rows_of. The result has the shape of q.
at::Tensor queries_of(const at::Tensor& rows, const at::Tensor& q) {
  return rows.view({q.size(0), rows.size(1), -1, q.size(1), q.size(3)})
      .permute({0, 3, 1, 2, 4})
      .reshape(q.sizes());
}

/// Narrows x: [all sequences, ..] to the sequences of a block.
at::Tensor sequences_of(const QueryBlock& queries, const at::Tensor& x) {
  return x.narrow(0, queries.first_sequence, queries.sequences());
}

/// Returns heads that are stored as they are: [sequences, kv_heads, tokens, d], a view.
at::Tensor own_heads(const QueryBlock& queries, const DeviceView& view, std::int64_t tokens) {
  return sequences_of(queries, view.block(view.number).own_columns())
      .narrow(1, 0, tokens)
      .unflatten(2, {view.layer().kv_heads, -1})
      .transpose(1, 2);
}

/// Returns tokens that are kept as they are: [sequences, kv_heads, tokens, d], in the type of `like`.
at::Tensor exact_heads(const QueryBlock& queries, const at::Tensor& x, std::int64_t tokens,
                       const at::Tensor& like) {
  return sequences_of(queries, x).narrow(1, 0, tokens).to(like.scalar_type()).transpose(1, 2);
}

/// Returns which of the first `tokens` tokens begin a document: [sequences, 1, tokens]. starts: [sequences,
/// slots].
at::Tensor marked(const at::Tensor& starts, std::int64_t tokens) {
  const at::Tensor inside = starts.ge(0).logical_and(starts.lt(tokens));
  return at::zeros({starts.size(0), tokens + 1}, starts.options().dtype(at::kBool))
      .scatter_(1, at::where(inside, starts, at::full_like(starts, tokens)), true)
      .narrow(1, 0, tokens)
      .unsqueeze(1);
}

/// Returns which columns a query does not read: [sequences or 1, queries, columns]; undefined: it reads all.
at::Tensor hidden_columns(const QueryBlock& queries, std::int64_t exact_recent, std::int64_t window) {
  const bool windowed = window > 0 && queries.tokens > window, recent = queries.recent_positions.defined(),
             starts = queries.start_positions.defined();
  if (queries.sees_all && !windowed && !recent && !starts) return {};
  const at::Tensor position = queries.positions.unsqueeze(2),
                   last = recent ? position - exact_recent : position;
  const at::Tensor token = at::arange(queries.tokens, position.options());
  const auto outside = [&](const at::Tensor& hidden, const at::Tensor& tokens) {
    return windowed ? hidden.logical_or(tokens.le(position - window)) : hidden;
  };
  std::vector<at::Tensor> parts{outside(token.gt(last), token)};
  if (recent) {
    const at::Tensor near = queries.recent_positions.unsqueeze(1);
    parts.push_back(outside(near.gt(position).logical_or_(near.le(last)).logical_or_(near.lt(0)), near));
  }
  if (starts) {
    const at::Tensor start = queries.start_positions.unsqueeze(1);
    parts.front() = parts.front().logical_or(marked(queries.start_positions, queries.tokens));
    parts.push_back(outside(start.gt(last).logical_or_(start.lt(0)), start));
    for (at::Tensor& part : parts) part = part.expand({queries.sequences(), -1, -1});
  }
  return at::cat(parts, 2);
}

/// Calls use(first, count) for chunks of tokens; `width` numbers are read of each token.
template <class Use>
void for_each_chunk(const QueryBlock& queries, std::int64_t tokens, std::int64_t width, at::ScalarType type,
                    const Use& use) {
  const auto token_bytes = queries.sequences() * width * static_cast<std::int64_t>(at::elementSize(type));
  const std::int64_t chunk =
      std::max(DeviceBlock::kTokens, kChunkBytes / std::max<std::int64_t>(1, token_bytes));
  for (std::int64_t first = 0; first < tokens; first += chunk) use(first, std::min(chunk, tokens - first));
}

/// Adds the scores of rows: [sequences, kv_heads, rows, d] to scores: [sequences, kv_heads, rows, stored
/// tokens].
void add_scores(const at::Tensor& scores, const at::Tensor& rows, const QueryBlock& queries,
                const DeviceView& keys) {
  for (const BandMap& map : keys.layer().maps) {
    const DeviceBand& band = (*keys.layers)[static_cast<std::size_t>(map.layer)].bands[map.band];
    const at::Tensor absorbed =
        by_head(rows.narrow(1, map.head, map.heads()), map.matrix.transpose(1, 2)).to(keys.read_type);
    const at::Tensor sums =
        band.codes ? at::matmul(absorbed.to(rows.scalar_type()), band.codes->lowest().to(rows.scalar_type()))
                   : at::Tensor();
    const at::Tensor part = scores.narrow(1, map.head, map.heads());
    for_each_chunk(queries, scores.size(3), map.count, keys.read_type, [&](std::int64_t first, auto count) {
      const StoredNumbers z = keys.block(map.layer).read(map, queries.first_sequence, queries.sequences(),
                                                         first, count, keys.read_type);
      at::Tensor products = wide_product(absorbed, z.values.transpose(1, 2));
      if (band.codes)
        products.mul_(z.scales.step.unsqueeze(1)).addcmul_(sums.unsqueeze(2), z.scales.base.unsqueeze(1));
      part.narrow(3, first, count).add_(products.unflatten(1, {map.heads(), -1}));
    });
  }
}

/// Adds the stored values weighted by weights: [.., rows, stored tokens] to out: [sequences, kv_heads, rows,
/// d].
void add_values(const at::Tensor& out, const at::Tensor& weights, const QueryBlock& queries,
                const DeviceView& values) {
  for (const BandMap& map : values.layer().maps) {
    const DeviceBand& band = (*values.layers)[static_cast<std::size_t>(map.layer)].bands[map.band];
    const at::Tensor by_token = weights.narrow(1, map.head, map.heads()).flatten(1, 2);
    at::Tensor gathered = at::zeros({by_token.size(0), by_token.size(1), map.count}, out.options());
    for_each_chunk(queries, by_token.size(2), map.count, values.read_type,
                   [&](std::int64_t first, auto count) {
                     const StoredNumbers z = values.block(map.layer).read(
                         map, queries.first_sequence, queries.sequences(), first, count, values.read_type);
                     const at::Tensor part = by_token.narrow(2, first, count);
                     const at::Tensor scaled = band.codes ? part * z.scales.step.unsqueeze(1) : part;
                     gathered.add_(wide_product(scaled.to(values.read_type), z.values));
                     if (!band.codes) return;
                     const at::Tensor base = at::bmm(part, z.scales.base.to(part.scalar_type()).unsqueeze(2));
                     gathered.addcmul_(base, band.codes->lowest().to(part.scalar_type()));
                   });
    const at::Tensor reconstructed = by_head(gathered.unflatten(1, {map.heads(), -1}), map.matrix);
    out.narrow(1, map.head, map.heads()).add_(reconstructed.unflatten(1, {map.heads(), -1}));
  }
}

at::Tensor scores_of(const at::Tensor& rows, const Columns& columns, const QueryBlock& queries,
                     const DeviceView& keys) {
  at::Tensor scores = at::zeros({rows.size(0), rows.size(1), rows.size(2), columns.all()}, rows.options());
  const auto products = [&](const at::Tensor& heads) { return at::matmul(rows, heads.transpose(2, 3)); };
  if (columns.exact > 0)
    columns.exact_of(scores).copy_(products(exact_heads(queries, keys.exact, columns.exact, rows)));
  if (columns.recent > 0)
    columns.recent_of(scores).copy_(products(exact_heads(queries, keys.recent, columns.recent, rows)));
  if (columns.starts > 0)
    columns.starts_of(scores).copy_(products(exact_heads(queries, keys.starts, columns.starts, rows)));
  if (columns.stored == 0) return scores;
  const at::Tensor stored = columns.stored_of(scores);
  if (keys.layer().own_columns)
    stored.copy_(products(own_heads(queries, keys, columns.stored).to(rows.scalar_type())));
  if (keys.layer().bias.defined()) stored.add_(at::matmul(rows, keys.layer().bias.transpose(1, 2)));
  add_scores(stored, rows, queries, keys);
  return scores;
}

at::Tensor gather_values(const at::Tensor& weights, const Columns& columns, const QueryBlock& queries,
                         const DeviceView& values) {
  const std::int64_t d = queries.q.size(3);
  at::Tensor out = at::zeros({weights.size(0), weights.size(1), weights.size(2), d}, weights.options());
  if (columns.exact > 0)
    out.add_(at::matmul(columns.exact_of(weights), exact_heads(queries, values.exact, columns.exact, out)));
  if (columns.recent > 0)
    out.add_(
        at::matmul(columns.recent_of(weights), exact_heads(queries, values.recent, columns.recent, out)));
  if (columns.starts > 0)
    out.add_(
        at::matmul(columns.starts_of(weights), exact_heads(queries, values.starts, columns.starts, out)));
  if (columns.stored == 0) return out;
  const at::Tensor stored = columns.stored_of(weights);
  if (values.layer().own_columns)
    out.add_(at::matmul(stored, own_heads(queries, values, columns.stored).to(out.scalar_type())));
  if (values.layer().bias.defined()) out.addcmul_(stored.sum(3, true), values.layer().bias);
  add_values(out, stored, queries, values);
  return out;
}

#if TORCH_VERSION_MAJOR >= 2
/// Returns whether all heads are stored as they are, side by side.
bool is_full(const DeviceView& view) {
  return view.layer().own_columns && !view.exact.defined() && !view.recent.defined() &&
         !view.starts.defined();
}

at::Tensor fused_attention(const QueryBlock& queries, const at::Tensor& hidden, const DeviceView& keys,
                           const DeviceView& values) {
  const at::Tensor k = own_heads(queries, keys, queries.tokens);
  const at::Tensor rows = rows_of(queries.q.to(k.scalar_type()), k.size(1));
  const at::Tensor v = own_heads(queries, values, queries.tokens);
  const auto by_row = [&] { return hidden.logical_not().repeat({1, rows.size(2) / queries.q.size(1), 1}); };
  const at::Tensor out = hidden.defined()
                             ? at::scaled_dot_product_attention(rows, k, v, by_row().unsqueeze(1))
                             : at::scaled_dot_product_attention(rows, k, v);
  return queries_of(out.to(queries.q.scalar_type()).contiguous(), queries.q);
}
#endif

}  // namespace

at::Tensor attend_blocks(const QueryBlock& queries, const DeviceView& keys, const DeviceView& values,
                         const ExactTokens& exact) {
  const AttentionRule& rule = keys.layer().attention;
  const at::Tensor hidden = hidden_columns(queries, exact.recent, rule.window);
#if TORCH_VERSION_MAJOR >= 2
  if (rule.softcap == 0 && is_full(keys) && is_full(values))
    return fused_attention(queries, hidden, keys, values);
#endif
  const Columns columns = columns_of(queries, keys, exact);
  const double scale = 1 / std::sqrt(static_cast<double>(queries.q.size(3)));
  const at::Tensor rows = rows_of(queries.q * scale, keys.layer().kv_heads);
  const at::Tensor scores = scores_of(rows, columns, queries, keys);
  if (rule.softcap > 0) scores.div_(rule.softcap).tanh_().mul_(rule.softcap);
  if (hidden.defined())
    scores.unflatten(2, {-1, queries.q.size(1)})
        .masked_fill_(hidden.unsqueeze(1).unsqueeze(1), -std::numeric_limits<double>::infinity());
  return queries_of(gather_values(at::softmax(scores, 3), columns, queries, values), queries.q);
}

at::Tensor decode_slots(const DeviceView& view, const at::Tensor& slots, at::ScalarType type) {
  const DeviceLayer& layer = view.layer();
  if (layer.own_columns) {
    const at::Tensor& columns = view.block(view.number).own_columns();
    return columns.flatten(0, 1).index_select(0, slots).to(type).view({slots.size(0), layer.kv_heads, -1});
  }
  at::Tensor out = layer.bias.defined() ? layer.bias.repeat({1, slots.size(0), 1}) : at::Tensor();
  for (const BandMap& map : layer.maps) {
    const at::Tensor numbers = view.block(map.layer).read_slots(map, slots, type);
    if (!out.defined())
      out = at::zeros({layer.kv_heads, slots.size(0), map.matrix.size(2)}, numbers.options());
    out.narrow(0, map.head, map.heads()).add_(at::matmul(numbers, map.matrix));
  }
  return out.transpose(0, 1).contiguous();
}

}  // namespace headspan
