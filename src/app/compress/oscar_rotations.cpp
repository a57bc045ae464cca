#include "app/compress/oscar_rotations.h"

#include <ATen/ATen.h>

#include "app/capture/rounds.h"
#include "app/run/run_clock.h"
#include "app/sources/value_range.h"
#include "base/checked.h"
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
  ObservedCache(std::unique_ptr<KvCache> full, std::int64_t skip_first, const Observer& observe)
      : KvCache(static_cast<std::int64_t>(full->lengths().size())),
        full_(std::move(full)),
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
    return full_->attend(layer, q, k, v, counts);
  }
  void advance(const std::vector<std::int64_t>& counts) override {
    KvCache::advance(counts);
    full_->advance(counts);
  }
  CacheBytes bytes() const override { return full_->bytes(); }

 private:
  std::unique_ptr<KvCache> full_;
  std::int64_t skip_first_;
  const Observer& observe_;
};

class RotationFitter {
 public:
  RotationFitter(const Transformer& model, const ModelInput& input, const RotationTokens& tokens,
                 const ProcessLayout& processes)
      : model_(model),
        config_(input.config),
        types_{input.dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32, input.dtype},
        tokens_(tokens),
        processes_(processes),
        heads_(model.heads(Stream::k)),
        full_(full_plan(input.config, heads_)) {}

  /// Returns the sums of q q^T: [layers, kv_heads, d, d], on every rank. Collective.
  at::Tensor query_moments() const {
    return sum([&](const LayerValues& x, std::int64_t, at::Tensor& sums) {
      const at::Tensor by_head =
          x.q.view({x.q.size(0), heads_.count, -1, x.q.size(2)}).transpose(0, 1).flatten(1, 2);
      sums.add_(at::bmm(by_head.transpose(1, 2), by_head));
    });
  }

  /// Returns the sums of w v v^T likewise. queries: query_moments(). Collective.
  at::Tensor value_moments(const at::Tensor& queries) const {
    return sum([&](const LayerValues& x, std::int64_t layer, at::Tensor& sums) {
      const at::Tensor metric = queries[layer].narrow(0, heads_.first, heads_.count),
                       keys = x.k.transpose(0, 1), values = x.v.transpose(0, 1);
      const at::Tensor weight = (at::bmm(keys, metric) * keys).sum(2, true);
      sums.add_(at::bmm(values.transpose(1, 2), weight * values));
    });
  }

 private:
  using AddTokens = std::function<void(const LayerValues& values, std::int64_t layer, at::Tensor& sums)>;

  at::Tensor sum(const AddTokens& add) const {
    const std::int64_t d = config_.head_size;
    at::Tensor sums = at::zeros({config_.layers, config_.kv_heads, d, d}, at::kDouble);
    run([&](std::int64_t layer, const LayerValues& values) {
      at::Tensor of_rank = sums[layer].narrow(0, heads_.first, heads_.count);
      add(values, layer, of_rank);
    });
    processes_.group().sum(sums.data_ptr<double>(), sums.numel());
    return sums;
  }

  /// Runs the sequences of the fit part, each on one data-parallel row. Collective.
  void run(const Observer& observe) const {
    const Sample& sample = tokens_.sample;
    for (const Round& round : plan_remaining(sample.sequences, processes_.data().size(),
                                             tokens_.batch_tokens, sample.heldout)) {
      stop_where_asked(processes_.group());
      std::vector<std::vector<std::int64_t>> sequences;
      for (const std::int64_t s : round[to_size(processes_.data().rank())])
        sequences.push_back(sample.tokens[to_size(s)]);
      if (sequences.empty()) continue;
      ObservedCache cache(
          std::make_unique<PagedCache>(full_, static_cast<std::int64_t>(sequences.size()), types_,
                                       processes_.tensor_device()),
          tokens_.skip_first, observe);
      hidden_states(model_, sequences, cache);
    }
  }

  const Transformer& model_;
  const ModelConfig& config_;
  CacheTypes types_;
  const RotationTokens& tokens_;
  const ProcessLayout& processes_;
  Range heads_;
  CachePlan full_;
};

/// Returns R H for the eigenvectors R of each head's moments: [kv_heads, d, d], row-major.
std::vector<float> rotations_of(const at::Tensor& moments) {
  const std::int64_t d = moments.size(1);
  const at::Tensor spread = hadamard(d), vectors = moments.clone();
  std::vector<float> rotations;
  for (std::int64_t head = 0; head < moments.size(0); ++head) {
    local_eigenvectors(vectors[head].data_ptr<double>(), d);
    const at::Tensor rotation = at::mm(vectors[head].t(), spread).to(at::kFloat).contiguous();
    rotations.insert(rotations.end(), rotation.data_ptr<float>(), rotation.data_ptr<float>() + d * d);
  }
  return rotations;
}

}  // namespace

void set_rotations(const Transformer& model, const ModelInput& input, const std::string& path,
                   const RotationTokens& tokens, const ProcessLayout& processes, PlannedStreams& planned) {
  const RotationFitter fitter(model, input, tokens, processes);
  const auto checked = [&](const std::string& stream, const at::Tensor& sums) {
    check_head_sums(path, stream, input.dtype, input.config.layers, input.config.kv_heads,
                    {sums.data_ptr<double>(), sums.data_ptr<double>() + sums.numel()}, processes.group());
    return sums;
  };
  std::map<Stream, at::Tensor> moments;
  moments[Stream::k] = checked("q, read by k", fitter.query_moments());
  if (planned.count(Stream::v) > 0)
    moments[Stream::v] = checked("v", fitter.value_moments(moments.at(Stream::k)));
  for (auto& [stream, blocks] : planned)
    for (std::size_t layer = 0; layer < blocks.size(); ++layer)
      blocks[layer].rotation = rotations_of(moments.at(stream)[static_cast<std::int64_t>(layer)]);
}

}  // namespace headspan
