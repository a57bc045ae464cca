#include "stats/compression/attention_metric.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "dist/matrix/local_algebra.h"
#include "dist/matrix/scalapack.h"
#include "dist/threads.h"

namespace headspan {
namespace {

/// Adds sum += factor * head, [d, d] each.
void add_matrix(double* sum, double factor, const double* head, std::int64_t d) {
  for (std::int64_t i = 0; i < d * d; ++i) sum[i] += factor * head[i];
}

}  // namespace

AttentionSums::AttentionSums(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads,
                             std::int64_t head_size) {
  sums_.layers = layers;
  sums_.heads = heads;
  sums_.kv_heads = kv_heads;
  sums_.head_size = head_size;
  sums_.scale.resize(to_size(layers));
  sums_.query.resize(to_size(layers * heads * head_size * head_size));
}

template <class T>
void AttentionSums::add_queries(std::int64_t layer, std::int64_t first, std::int64_t count, const T* values,
                                const std::vector<std::int64_t>& rows) {
  const std::int64_t d = sums_.head_size;
  const int n = to_int(d), tokens = to_int(static_cast<std::int64_t>(rows.size()));
  if (tokens == 0) return;
  const double one = 1;
  const SingleThreadedBlas single;
#pragma omp parallel for schedule(static)
  for (std::int64_t h = 0; h < count; ++h) {
    std::vector<double> columns(rows.size() * to_size(d));  // [d, tokens], column-major
    for (std::size_t i = 0; i < rows.size(); ++i)
      std::copy_n(values + (rows[i] * count + h) * d, d, &columns[i * to_size(d)]);
    double* sum = &sums_.query[to_size(((layer * sums_.heads) + first + h) * d * d)];
    dsyrk_("L", "N", &n, &tokens, &one, columns.data(), &n, &one, sum, &n);
  }
}

template void AttentionSums::add_queries<float>(std::int64_t, std::int64_t, std::int64_t, const float*,
                                                const std::vector<std::int64_t>&);
template void AttentionSums::add_queries<double>(std::int64_t, std::int64_t, std::int64_t, const double*,
                                                 const std::vector<std::int64_t>&);

void AttentionSums::add_mean_squares(std::int64_t layer, const std::vector<double>& values,
                                     const std::vector<std::int64_t>& rows) {
  for (const std::int64_t row : rows) {
    const double value = values[to_size(row)];
    sums_.scale[to_size(layer)] += 1 / value + (value - value);  // adds NaN where it overflowed
  }
}

AttentionMoments AttentionSums::finish(const Comm& comm, std::int64_t tokens) {
  comm.sum(sums_.scale.data(), static_cast<std::int64_t>(sums_.scale.size()));
  comm.sum(sums_.query.data(), static_cast<std::int64_t>(sums_.query.size()));
  const std::int64_t d = sums_.head_size;
  const double share = 1 / static_cast<double>(std::max<std::int64_t>(1, tokens));
  for (double& w : sums_.scale) w *= share;
  for (std::int64_t head = 0; head < sums_.layers * sums_.heads; ++head) {
    double* q = &sums_.query[to_size(head * d * d)];
    for (std::int64_t i = 0; i < d * d; ++i) q[i] = q[i] * share / static_cast<double>(d);
    mirror_lower(q, d, d);
  }
  return std::move(sums_);
}

std::vector<double> value_metric(const AttentionMoments& moments, std::int64_t layer) {
  const std::int64_t d = moments.head_size, group = moments.heads / moments.kv_heads;
  std::vector<double> metric(to_size(moments.kv_heads * d * d));
  for (std::int64_t h = 0; h < moments.heads; ++h)
    add_matrix(&metric[to_size(h / group * d * d)], moments.scale[to_size(layer)],
               &moments.output[to_size((layer * moments.heads + h) * d * d)], d);
  return metric;
}

std::vector<double> key_metric(const AttentionMoments& moments, std::int64_t layer,
                               const std::vector<double>& value_covariance) {
  const std::int64_t d = moments.head_size, group = moments.heads / moments.kv_heads;
  std::vector<double> metric(to_size(moments.kv_heads * d * d));
  for (std::int64_t h = 0; h < moments.heads; ++h) {
    const std::size_t at = to_size((layer * moments.heads + h) * d * d), kv = to_size(h / group * d * d);
    const double* output = &moments.output[at];
    const double trace = std::inner_product(output, output + d * d, &value_covariance[kv], 0.0);
    add_matrix(&metric[kv], moments.scale[to_size(layer)] * trace, &moments.query[at], d);
  }
  return metric;
}

}  // namespace headspan
