#include "model/forward/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <torch/version.h>

#include "base/error.h"
#include "dist/threads.h"
#include "model/kernels/row_kernels.h"

namespace headspan {
namespace {

constexpr std::int64_t kBlock = 128;  // queries per block: its scores for 1000 keys fill half a megabyte

/// Applies the softmax to the scores of queries begin, begin + 1, ... over the keys that each reads; others
/// get zero. scores: [queries, keys from first_key on].
template <class T>
void causal_softmax(const at::Tensor& scores, std::int64_t begin, std::int64_t first_key,
                    const AttentionRule& rule) {
  const std::int64_t keys = scores.size(1);
  T* row = scores.data_ptr<T>();
  for (std::int64_t seen = begin + 1; seen <= begin + scores.size(0); ++seen, row += keys) {
    const std::int64_t first = rule.first(seen) - first_key, end = seen - first_key;
    std::fill(row, row + first, T{0});
    softmax_row(row + first, end - first);
    std::fill(row + end, row + keys, T{0});
  }
}

/// Computes one head of one sequence. q, k, v, out: [length, d], rows any distance apart.
template <class T>
void attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const at::Tensor& out,
            const AttentionRule& rule) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(1)));
  const std::int64_t length = q.size(0), block = std::min(kBlock, length);
  const at::Tensor buffer = at::empty({block * length}, q.options());
  for (std::int64_t begin = 0; begin < length; begin += block) {
    const std::int64_t first = rule.first(begin + 1);
    const std::int64_t count = std::min(block, length - begin), keys = begin + count - first;
    at::Tensor scores = buffer.narrow(0, 0, count * keys).view({count, keys});
    at::addmm_out(scores, scores, q.narrow(0, begin, count), k.narrow(0, first, keys).t(), 0, scale);
    if (rule.softcap > 0) scores.div_(rule.softcap).tanh_().mul_(rule.softcap);
    causal_softmax<T>(scores, begin, first, rule);
    at::Tensor rows = out.narrow(0, begin, count);
    at::mm_out(rows, scores, v.narrow(0, first, keys));
  }
}

#if TORCH_VERSION_MAJOR >= 2
at::Tensor fused_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const std::vector<std::int64_t>& lengths) {
  const std::int64_t group = q.size(1) / k.size(1);
  // [kv_heads, group, length, d], a view: the KV heads of one sequence take the place of the batch.
  const auto by_head = [](const at::Tensor& x, std::int64_t heads) {
    return x.view({x.size(0), heads, -1, x.size(2)}).permute({1, 2, 0, 3});
  };
  at::Tensor out = at::empty_like(q);
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    const at::Tensor queries = by_head(q.narrow(0, begin, length), k.size(1));
    const auto shared = [&](const at::Tensor& x) {
      return by_head(x.narrow(0, begin, length), k.size(1)).expand({-1, group, -1, -1});
    };
    by_head(out.narrow(0, begin, length), k.size(1))
        .copy_(at::scaled_dot_product_attention(queries, shared(k), shared(v), {}, 0, true));
    begin += length;
  }
  return out;
}
#endif

}  // namespace

at::Tensor blocked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                             const std::vector<std::int64_t>& lengths, const AttentionRule& rule) {
  const at::ScalarType dtype = q.scalar_type();
  if (dtype == at::kHalf || dtype == at::kBFloat16)
    return blocked_attention(q.to(at::kFloat), k.to(at::kFloat), v.to(at::kFloat), lengths, rule).to(dtype);
  const std::int64_t heads = q.size(1), group = heads / k.size(1);
  std::vector<std::int64_t> begins;
  std::int64_t total = 0;
  for (const std::int64_t length : lengths) {
    begins.push_back(total);
    total += length;
  }
  at::Tensor out = at::empty_like(q);
  const auto one_head = dtype == at::kDouble ? attend<double> : attend<float>;
  const SingleThreadedBlas serial_products;
  at::parallel_for(
      0, static_cast<std::int64_t>(lengths.size()) * heads, 1, [&](std::int64_t first, std::int64_t last) {
        const c10::InferenceMode inference;  // the guard of the calling thread does not reach this one
        for (std::int64_t task = first; task < last; ++task) {
          const auto sequence = static_cast<std::size_t>(task / heads);
          const std::int64_t head = task % heads;
          const auto part = [&](const at::Tensor& x, std::int64_t h) {
            return x.select(1, h).narrow(0, begins[sequence], lengths[sequence]);
          };
          one_head(part(q, head), part(k, head / group), part(v, head / group), part(out, head), rule);
        }
      });
  return out;
}

#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 5)
constexpr std::int64_t kScores = std::int64_t{1} << 25;  // computed at once on a GPU in float64

at::Tensor side_by_side_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const std::vector<std::int64_t>& lengths) {
  const std::int64_t heads = q.size(1), group = heads / k.size(1);
  // Only these types have a fused kernel in which query heads share a KV head.
  const bool shared = group > 1 && (q.scalar_type() == at::kHalf || q.scalar_type() == at::kBFloat16);
  at::Tensor out = at::empty_like(q);
  std::int64_t begin = 0;
  for (std::size_t first = 0, last = 0; first < lengths.size(); first = last) {
    const std::int64_t length = lengths[first];
    while (last < lengths.size() && lengths[last] == length) ++last;
    const std::int64_t count = static_cast<std::int64_t>(last - first), rows = count * length;
    // [sequences, heads, length, d], a view.
    const auto by_head = [&](const at::Tensor& x) {
      return x.narrow(0, begin, rows).view({count, length, x.size(1), x.size(2)}).transpose(1, 2);
    };
    const auto for_queries = [&](const at::Tensor& x) {
      return group > 1 && !shared ? by_head(x).repeat_interleave(group, 1) : by_head(x);
    };
    const at::Tensor queries = by_head(q), keys = for_queries(k), values = for_queries(v),
                     sums = by_head(out);
    std::int64_t step = heads;  // fused kernels take all heads at once, as they keep no scores
    if (q.scalar_type() == at::kDouble)
      step = std::clamp<std::int64_t>(kScores / (count * length * length), 1, heads);
    for (std::int64_t head = 0; head < heads; head += step) {
      const auto part = [&](const at::Tensor& x) {
        return step < heads ? x.narrow(1, head, std::min(step, heads - head)) : x;
      };
      part(sums).copy_(at::scaled_dot_product_attention(part(queries), part(keys), part(values), {}, 0, true,
                                                        std::nullopt, shared));
    }
    begin += rows;
  }
  return out;
}
#else
at::Tensor side_by_side_attention(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                  const std::vector<std::int64_t>&) {
  throw Error("attention on a GPU needs LibTorch 2.5 or later");
}
#endif

at::Tensor attention_weights(const at::Tensor& q, const at::Tensor& k, const AttentionRule& rule) {
  const at::ScalarType wide = q.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor token = at::arange(q.size(0), at::dtype(at::kLong).device(q.device()));
  const at::Tensor back = token.unsqueeze(1) - token;  // [query, key]: how far behind
  at::Tensor hidden = back.lt(0);
  if (rule.window > 0) hidden = hidden.logical_or(back.ge(rule.window));
  at::Tensor scores =
      at::matmul(q.transpose(0, 1).to(wide), k.to(wide).t()).div_(std::sqrt(static_cast<double>(q.size(2))));
  if (rule.softcap > 0) scores.div_(rule.softcap).tanh_().mul_(rule.softcap);
  scores.masked_fill_(hidden, -std::numeric_limits<double>::infinity());
  return at::softmax(scores, -1);
}

at::Tensor masked_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& lengths, const AttentionRule& rule) {
  const std::int64_t kv_heads = k.size(1), d = q.size(2);
  at::Tensor out = at::empty_like(q);
  std::int64_t begin = 0;
  for (const std::int64_t length : lengths) {
    for (std::int64_t head = 0; head < kv_heads; ++head) {
      const auto of_head = [&](const at::Tensor& x) { return x.narrow(0, begin, length).select(1, head); };
      const auto of_group = [&](const at::Tensor& x) {
        return x.narrow(0, begin, length).view({length, kv_heads, -1, d}).select(1, head);
      };
      const at::Tensor weights = attention_weights(of_group(q), of_head(k), rule);
      const at::Tensor mixed =
          at::matmul(weights, of_head(v).to(weights.scalar_type()));  // [group, query, d]
      of_group(out).copy_(mixed.transpose(0, 1));
    }
    begin += length;
  }
  return out;
}

at::Tensor causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                            const std::vector<std::int64_t>& lengths, const AttentionRule& rule) {
  if (!rule.is_plain())
    return q.is_cpu() ? blocked_attention(q, k, v, lengths, rule) : masked_attention(q, k, v, lengths, rule);
  if (!q.is_cpu()) return side_by_side_attention(q, k, v, lengths);
#if TORCH_VERSION_MAJOR >= 2
  return fused_attention(q, k, v, lengths);
#else
  return blocked_attention(q, k, v, lengths);
#endif
}

}  // namespace headspan
