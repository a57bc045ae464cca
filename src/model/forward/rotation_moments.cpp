#include "model/forward/rotation_moments.h"

#include <functional>

#include <ATen/ATen.h>

#include "dist/matrix/linear_algebra.h"
#include "model/cache/paged_cache.h"
#include "model/core/hadamard.h"
#include "model/forward/inference.h"

namespace headspan {
namespace {

/// What a layer computes for some tokens: [tokens, heads, d], float64.
struct LayerValues {
  at::Tensor q, k, v;
};

using Observer = std::function<void(std::int64_t layer, const LayerValues& values)>;

/// A full cache that shows what is appended to it, without the first tokens of each sequence.
class ObservedCache : public KvCache {
 public:
  ObservedCache(PagedCache& full, std::int64_t skip_first, const Observer& observe)
      : KvCache(static_cast<std::int64_t>(full.lengths().size())),
        full_(full),
        skip_first_(skip_first),
        observe_(observe) {}

  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) override {
    std::vector<std::int64_t> rows;
    std::int64_t row = 0;
    for (std::size_t s = 0; s < counts.size(); ++s)
      for (std::int64_t i = 0; i < counts[s]; ++i, ++row)
        if (lengths()[s] + i >= skip_first_) rows.push_back(row);
    const at::Tensor index = at::tensor(rows, at::kLong);
    const auto counted = [&](const at::Tensor& x) { return x.index_select(0, index).to(at::kDouble); };
    if (!rows.empty()) observe_(layer, {counted(q), counted(k), counted(v)});
    return full_.attend(layer, q, k, v, counts);
  }
  void advance(const std::vector<std::int64_t>& counts) override {
    KvCache::advance(counts);
    full_.advance(counts);
  }
  CacheBytes bytes() const override { return full_.bytes(); }

 private:
  PagedCache& full_;
  std::int64_t skip_first_;
  const Observer& observe_;
};

/// Runs sequences with a full cache and shows what is appended to it. Collective over tensor_parallel.
void observe(const Transformer& model, Dtype forward, std::int64_t skip_first,
             const DeviceComm& tensor_parallel, const RotationMoments::Sequences& sequences,
             const Observer& observer) {
  const CachePlan plan = full_plan(model.config(), model.heads(Stream::k));
  const CacheTypes types{forward == Dtype::float64 ? Dtype::float64 : Dtype::float32, forward};
  PagedCache full(plan, static_cast<std::int64_t>(sequences.size()), types, tensor_parallel);
  ObservedCache cache(full, skip_first, observer);
  hidden_states(model, sequences, cache);
}

/// Returns what belongs to the heads of a rank in one layer of all: [layers, kv_heads, columns], a view.
at::Tensor of_layer(const std::vector<double>& all, const ModelConfig& config, Range heads,
                    std::int64_t layer) {
  const std::int64_t columns = static_cast<std::int64_t>(all.size()) / (config.layers * config.kv_heads);
  const std::int64_t first = (layer * config.kv_heads + heads.first) * columns;
  return at::from_blob(const_cast<double*>(all.data()) + first, {heads.count, columns}, at::kDouble);
}

/// Returns the matrices of a rank's heads in one layer of all: [layers, kv_heads, d, d], a view.
at::Tensor matrices_of_layer(const std::vector<double>& all, const ModelConfig& config, Range heads,
                             std::int64_t layer) {
  return of_layer(all, config, heads, layer).view({heads.count, config.head_size, config.head_size});
}

}  // namespace

RotationMoments::RotationMoments(const Transformer& model, Dtype forward, std::int64_t skip_first,
                                 const DeviceComm& tensor_parallel)
    : model_(model), forward_(forward), skip_first_(skip_first), tensor_parallel_(tensor_parallel) {}

void RotationMoments::add_queries(const Sequences& sequences, WeightedMoments& moments) const {
  const Range heads = model_.heads(Stream::k);
  observe(model_, forward_, skip_first_, tensor_parallel_, sequences,
          [&](std::int64_t layer, const LayerValues& x) {
            const at::Tensor by_head =
                x.q.view({x.q.size(0), heads.count, -1, x.q.size(2)}).transpose(0, 1).flatten(1, 2);
            matrices_of_layer(moments.sums, model_.config(), heads, layer)
                .add_(at::bmm(by_head.transpose(1, 2), by_head));
            of_layer(moments.weights, model_.config(), heads, layer).add_(by_head.size(1));
          });
}

void RotationMoments::add_values(const Sequences& sequences, const std::vector<double>& metric,
                                 WeightedMoments& moments) const {
  const Range heads = model_.heads(Stream::k);
  observe(model_, forward_, skip_first_, tensor_parallel_, sequences,
          [&](std::int64_t layer, const LayerValues& x) {
            const ModelConfig& config = model_.config();
            const at::Tensor keys = x.k.transpose(0, 1), values = x.v.transpose(0, 1);
            const at::Tensor weight =
                (at::bmm(keys, matrices_of_layer(metric, config, heads, layer)) * keys).sum(2, true);
            matrices_of_layer(moments.sums, config, heads, layer)
                .add_(at::bmm(values.transpose(1, 2), weight * values));
            of_layer(moments.weights, config, heads, layer).add_(weight.sum(1));
          });
}

Rotations rotations_of(std::vector<double> moments, std::int64_t heads, std::int64_t d) {
  const at::Tensor spread = hadamard(d);
  Rotations found;
  for (std::int64_t head = 0; head < heads; ++head) {
    double* const vectors = moments.data() + head * d * d;
    const std::vector<double> values = local_eigenvectors(vectors, d);
    const at::Tensor rotation =
        at::mm(at::from_blob(vectors, {d, d}, at::kDouble).t(), spread).to(at::kFloat).contiguous();
    found.matrices.insert(found.matrices.end(), rotation.data_ptr<float>(),
                          rotation.data_ptr<float>() + d * d);
    found.eigenvalues.insert(found.eigenvalues.end(), values.begin(), values.end());
  }
  return found;
}

}  // namespace headspan
