#include "model/forward/head_scores.h"

#include <limits>

#include <ATen/ATen.h>

#include "base/checked.h"
#include "model/forward/attention.h"

namespace headspan {
namespace {

/// Calls use(weights: [group, query, key], first query head of the group) for each sequence and KV head.
template <class Use>
void for_each_group(const LayerQueries& layer, const ModelConfig& config, const Use& use) {
  const std::int64_t kv_heads = layer.k.size(1), group = layer.q.size(1) / kv_heads, d = layer.q.size(2);
  const at::Tensor q = config.query_scale == 1 ? layer.q : layer.q * config.query_scale;
  std::int64_t begin = 0;
  for (const std::int64_t length : *layer.lengths) {
    const at::Tensor queries = q.narrow(0, begin, length).reshape({length, kv_heads, group, d});
    const at::Tensor keys = layer.k.narrow(0, begin, length);
    for (std::int64_t head = 0; head < kv_heads; ++head)
      use(attention_weights(queries.select(1, head), keys.select(1, head), config.attention_in(layer.layer)),
          layer.layer * config.heads + layer.heads.first + head * group);
    begin += length;
  }
}

/// Returns the sums over the last `queries` queries of the weight of the token `back` before each: [group].
at::Tensor sum_behind(const at::Tensor& weights, std::int64_t back, std::int64_t queries) {
  const at::Tensor diagonal = weights.diagonal(-back, 1, 2);  // of the queries back, back + 1, ...
  return diagonal.narrow(1, diagonal.size(1) - queries, queries).sum(1);
}

}  // namespace

HeadScoreSums::HeadScoreSums(const ModelConfig& config)
    : config_(config), sums_(to_size(config.layers * config.heads) * kColumns) {}

void HeadScoreSums::add(std::int64_t head, Column column, const at::Tensor& sums) {
  const at::Tensor values = sums.to(at::kCPU).to(at::kDouble).contiguous();
  for (std::int64_t i = 0; i < values.numel(); ++i)
    sums_[to_size(head + i) * kColumns + column] += values.data_ptr<double>()[i];
}

void HeadScoreSums::add_repeated(const LayerQueries& layer, std::int64_t period) {
  for_each_group(layer, config_, [&](const at::Tensor& weights, std::int64_t head) {
    add(head, induction, sum_behind(weights, period - 1, period));
    add(head, duplicate_token, sum_behind(weights, period, period));
    add(head, repeated_queries, at::full({weights.size(0)}, static_cast<double>(period)));
  });
}

void HeadScoreSums::add_sample(const LayerQueries& layer) {
  for_each_group(layer, config_, [&](const at::Tensor& weights, std::int64_t head) {
    const std::int64_t count = weights.size(1) - 1;
    const at::Tensor rows = weights.narrow(1, 1, count);
    const at::Tensor bits = (rows * rows.clamp_min(std::numeric_limits<float>::min()).log()).sum(2);
    add(head, previous_token, sum_behind(weights, 1, count));
    add(head, first_token, rows.select(2, 0).sum(1));
    add(head, entropy, -bits.sum(1));
    add(head, queries, at::full({weights.size(0)}, static_cast<double>(count)));
  });
}

std::vector<double> HeadScoreSums::mean(Column column, Column count) const {
  std::vector<double> means;
  for (std::size_t i = 0; i < sums_.size(); i += kColumns)
    means.push_back(sums_[i + column] / sums_[i + count]);
  return means;
}

HeadScores HeadScoreSums::finish(const Comm& comm) {
  comm.sum(sums_.data(), static_cast<std::int64_t>(sums_.size()));
  return {mean(induction, repeated_queries), mean(duplicate_token, repeated_queries),
          mean(previous_token, queries), mean(first_token, queries), mean(entropy, queries)};
}

}  // namespace headspan
