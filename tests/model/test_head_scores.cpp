// Attention weights and the scores made of them: against the golden output of transformers, closed forms, and
// heads that are built to attend to a given token.
#include <cmath>
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "golden.h"
#include "model/forward/attention.h"
#include "model/forward/head_scores.h"
#include "model/types/read_config.h"

namespace headspan {
namespace {

constexpr std::int64_t kPeriod = 6, kSize = 16;

class AttentionWeights : public testing::TestWithParam<std::string> {};

TEST_P(AttentionWeights, times_values_are_what_heads_gather) {
  const ModelConfig config = read_model_config(golden_folder(GetParam()) + "/config.json");
  const Golden golden(GetParam());
  for (std::int64_t layer = 0; layer < 2; ++layer) {
    const auto tensor = [&](const std::string& stream, const char* point) {
      return golden["float64/" + stream + point + std::to_string(layer)];
    };
    const char* point = config.rotates_in(layer)         ? ".roped."
                        : config.qk_norm == QkNorm::none ? ".proj."
                                                         : ".normed.";
    const at::Tensor q = tensor("q", point) * config.query_scale, k = tensor("k", point),
                     v = tensor("v", ".proj."), z = tensor("z", ".");
    const std::int64_t group = config.heads / config.kv_heads;
    std::int64_t begin = 0;
    for (const std::int64_t length : golden.batch.lengths) {
      for (std::int64_t head = 0; head < config.kv_heads; ++head) {
        const auto rows = [&](const at::Tensor& x) { return x.narrow(0, begin, length); };
        const at::Tensor weights = attention_weights(rows(q).narrow(1, head * group, group),
                                                     rows(k).select(1, head), config.attention_in(layer));

        const at::Tensor gathered = at::matmul(weights, rows(v).select(1, head)).transpose(0, 1);

        EXPECT_LE(relative_error(gathered, rows(z).narrow(1, head * group, group)), 1e-12)
            << layer << " " << head;
      }
      begin += length;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, AttentionWeights,
                         testing::Values("olmo2_gqa", "llama_gqa", "falcon3", "qwen3", "olmo", "olmo3",
                                         "smollm3", "qwen2_window", "mistral_window", "gpt_neox", "apertus",
                                         "seed_oss", "phi3_long", "gemma2", "gemma3"));

/// A model of one layer with two query heads that read one KV head.
ModelConfig small_config(std::int64_t window = 0) {
  ModelConfig config;
  config.layers = 1;
  config.heads = 2;
  config.kv_heads = 1;
  config.head_size = kSize;
  config.attention = {{window, 0}};
  return config;
}

/// Scores of sequences of these lengths: the first head has queries q, the second queries of 0.
HeadScores scores_of(const ModelConfig& config, const at::Tensor& q, const at::Tensor& k,
                     const std::vector<std::int64_t>& lengths) {
  const LayerQueries layer{0, {0, 2}, at::stack({q, at::zeros_like(q)}, 1), k.unsqueeze(1), &lengths};
  HeadScoreSums sums(config);
  sums.add_repeated(layer, kPeriod);
  sums.add_sample(layer);
  return sums.finish(Comm::duplicate(MPI_COMM_SELF));
}

at::Tensor rows_of_one(const at::Tensor& number) { return at::one_hot(number, kSize).to(at::kDouble); }

TEST(HeadScores, OfUniformAttentionHaveTheirClosedForm) {
  const at::Tensor zero = at::zeros({25, kSize}, at::kDouble);
  for (const std::int64_t window : {0, 4}) {
    const HeadScores scores = scores_of(small_config(window), zero, zero, {13, 12});

    double repeated = 0, sample = 0, first = 0, entropy = 0;
    for (const std::int64_t length : {13, 12})
      for (std::int64_t t = 1; t < length; ++t) {
        const double read = static_cast<double>(window > 0 ? std::min(t + 1, window) : t + 1);
        if (t >= length - kPeriod) repeated += window > 0 ? 0 : 1 / read;
        sample += 1 / read;
        first += window > 0 && t >= window ? 0 : 1 / read;
        entropy += std::log(read);
      }
    for (std::size_t head = 0; head < 2; ++head) {
      EXPECT_NEAR(scores.induction[head], repeated / 12, 1e-12);
      EXPECT_NEAR(scores.duplicate_token[head], repeated / 12, 1e-12);
      EXPECT_NEAR(scores.previous_token[head], sample / 23, 1e-12);
      EXPECT_NEAR(scores.first_token[head], first / 23, 1e-12);
      EXPECT_NEAR(scores.entropy[head], entropy / 23, 1e-12);
    }
  }
}

TEST(HeadScores, AreOneForHeadsThatAttendToOneToken) {
  // A first token, then six tokens twice.
  const at::Tensor id = at::tensor({0, 1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6}, at::kLong),
                   place = at::arange(13, at::kLong);
  const at::Tensor before = at::cat({at::tensor({15}, at::kLong), id.narrow(0, 0, 12)});
  const double sure = 400;

  const HeadScores induction = scores_of(small_config(), rows_of_one(id) * sure, rows_of_one(before), {13});
  const HeadScores duplicate = scores_of(small_config(), rows_of_one(id) * sure, rows_of_one(id), {13});
  const HeadScores previous =
      scores_of(small_config(), rows_of_one(place) * sure, rows_of_one(place + 1), {13});
  const HeadScores first = scores_of(small_config(), rows_of_one(place * 0) * sure, rows_of_one(place), {13});

  EXPECT_NEAR(induction.induction[0], 1, 1e-12);
  EXPECT_NEAR(induction.duplicate_token[0], 0, 1e-12);
  EXPECT_NEAR(duplicate.duplicate_token[0], 0.5, 1e-12);  // the other half goes to the query's own token
  EXPECT_NEAR(duplicate.entropy[0], std::log(2.0) / 2, 1e-12);  // of the second six of twelve
  EXPECT_NEAR(previous.previous_token[0], 1, 1e-12);
  EXPECT_NEAR(previous.entropy[0], 0, 1e-12);
  EXPECT_NEAR(first.first_token[0], 1, 1e-12);
  EXPECT_LT(induction.induction[1], 0.2);  // of the head without queries
}

}  // namespace
}  // namespace headspan
