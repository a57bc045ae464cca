// Gradients of keys and values, for models of every type: the forward pass that is differentiated gives
// transformers' logits, and the gradients are differences of the model's own log-probabilities.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <gtest/gtest.h>

#include "base/checked.h"
#include "base/splitmix64.h"
#include "model/cache/kv_cache.h"
#include "model/forward/attention.h"
#include "model/forward/key_value_gradients.h"
#include "model/golden.h"
#include "model/types/read_config.h"

namespace headspan {
namespace {

/// By layer: [tokens, kv_heads, d].
struct Directions {
  std::vector<at::Tensor> k, v;
};

/// Attention over one batch, with something added to its keys, after the rotary embedding, and values.
class MovedCache : public KvCache {
 public:
  MovedCache(const ModelConfig& config, const PackedBatch& batch, const Directions& directions, double length)
      : KvCache(static_cast<std::int64_t>(batch.lengths.size())),
        config_(config),
        directions_(directions),
        length_(length) {}

  at::Tensor attend(std::int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::vector<std::int64_t>& counts) override {
    return causal_attention(q, k + directions_.k[to_size(layer)] * length_,
                            v + directions_.v[to_size(layer)] * length_, counts, config_.attention_in(layer));
  }
  CacheBytes bytes() const override { return {}; }

 private:
  const ModelConfig& config_;
  const Directions& directions_;
  double length_;
};

class KeyValueGradients : public testing::TestWithParam<std::string> {
 protected:
  KeyValueGradients() {
    SplitMix64 random(5);
    for (std::size_t t = 0; t < golden_.batch.tokens.size(); ++t)
      uniforms_.push_back(static_cast<double>(random.next() >> 11) * 0x1p-53);
  }

  /// Returns the logits behind moved keys and values: [tokens, vocabulary].
  at::Tensor logits(const Directions& directions, double length) const {
    MovedCache cache(config_, golden_.batch, directions, length);
    return model_.logits(model_.hidden(golden_.batch, cache));
  }

  /// Returns random directions of keys before the rotary embedding, and of values.
  Directions random_directions() const {
    const auto tokens = static_cast<std::int64_t>(golden_.batch.tokens.size());
    at::manual_seed(3);
    Directions directions;
    for (auto* const of_stream : {&directions.k, &directions.v})
      for (std::int64_t layer = 0; layer < config_.layers; ++layer)
        of_stream->push_back(at::randn({tokens, config_.kv_heads, config_.head_size}, at::kDouble));
    return directions;
  }

  Directions rotated(Directions directions) const {
    const std::vector<std::int64_t> starts(golden_.batch.lengths.size(), 0);
    for (std::int64_t layer = 0; layer < config_.layers; ++layer) {
      if (!config_.rotates_in(layer)) continue;
      const RopeRule& rule = config_.has_window_rope(layer) ? *config_.window_rope : config_.rope;
      at::Tensor& k = directions.k[to_size(layer)];
      k = rotate(k,
                 make_rope_table(rule, config_.rotated_size(), {starts, golden_.batch.lengths}, at::kDouble));
    }
    return directions;
  }

  const ModelConfig config_ = read_model_config(golden_folder(GetParam()) + "/config.json");
  const Checkpoint checkpoint_ = Checkpoint::open(golden_folder(GetParam()));
  const Golden golden_{GetParam()};
  const Layout layout_{1};
  const Transformer model_ = Transformer::load(config_, checkpoint_, {Dtype::float64, {config_.layers, true}},
                                               layout_.tensor_parallel, layout_.data_parallel);
  std::vector<double> uniforms_;
};

TEST_P(KeyValueGradients, AreThoseOfTheGoldenLogits) {
  EXPECT_LE(relative_error(plain_logits(model_, golden_.batch), golden_["float64/logits"]), 1e-12);
}

TEST_P(KeyValueGradients, AreDifferencesOfLogProbabilities) {
  const Directions directions = random_directions(), moved = rotated(directions);
  double slope = 0;
  std::int64_t seen = 0;
  key_value_gradients(model_, golden_.batch, uniforms_,
                      [&](std::int64_t layer, Stream stream, const at::Tensor& gradients) {
                        const auto& of_stream = stream == Stream::k ? directions.k : directions.v;
                        slope += (gradients * of_stream[to_size(layer)]).sum().item<double>();
                        ++seen;
                      });
  EXPECT_EQ(seen, 2 * config_.layers);

  const c10::InferenceMode inference;
  const at::Tensor uniform = at::tensor(uniforms_, at::kDouble).unsqueeze(1);
  const at::Tensor drawn = at::softmax(logits(moved, 0), 1).cumsum(1).le(uniform).sum(1, true);
  const auto log_probability = [&](double length) {
    return at::log_softmax(logits(moved, length), 1).gather(1, drawn).sum().item<double>();
  };
  constexpr double kStep = 1e-5;
  const double expected = (log_probability(kStep) - log_probability(-kStep)) / (2 * kStep);
  EXPECT_NEAR(slope / expected, 1, 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Models, KeyValueGradients, golden_models(),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace headspan
