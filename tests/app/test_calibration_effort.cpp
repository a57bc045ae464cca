// What compress.effort comes to for models of different sizes.
#include <gtest/gtest.h>

#include "app/compress/calibration_effort.h"

namespace headspan {
namespace {

ModelConfig model_of(std::int64_t layers, std::int64_t width) {
  ModelConfig config;
  config.layers = layers;
  config.hidden_size = width;
  config.heads = config.kv_heads = width / 64;
  config.head_size = 64;
  config.mlp_size = 4 * width;
  config.vocab_size = 50000;
  config.attention.resize(static_cast<std::size_t>(layers));
  return config;
}

CalibrationEffort effort_of(Job::Compress rule, const ModelConfig& config, bool grams = false,
                            std::int64_t most_text = 20000) {
  return choose_effort(rule, config, grams, most_text);
}

TEST(CalibrationEffort, follows_from_the_size_of_the_model) {
  const ModelConfig small = model_of(12, 768), large = model_of(48, 4096);
  Job::Compress rule;

  EXPECT_EQ(effort_of(rule, small).units, LossUnits::measured);
  EXPECT_EQ(effort_of(rule, small).own_text, 12288);
  EXPECT_TRUE(effort_of(rule, small).chosen);
  EXPECT_EQ(effort_of(rule, large).units, LossUnits::residual);
  EXPECT_EQ(effort_of(rule, large).own_text, 0);
  EXPECT_EQ(effort_of(rule, small, false, 0).own_text, 0) << "no token to begin with";
  EXPECT_EQ(effort_of(rule, small, false, 1500).own_text, 1500) << "more than of the user's text";
  rule.effort = Effort::full;
  EXPECT_EQ(effort_of(rule, large).units, LossUnits::measured);
  EXPECT_FALSE(effort_of(rule, large).chosen);
  rule.effort = Effort::quick;
  EXPECT_EQ(effort_of(rule, small).units, LossUnits::residual);
}

TEST(CalibrationEffort, generates_text_for_latents_alone) {
  Job::Compress rule;
  rule.algorithm = CompressionAlgorithm::headspan;

  EXPECT_EQ(effort_of(rule, model_of(12, 768)).units, LossUnits::measured);
  EXPECT_EQ(effort_of(rule, model_of(12, 768)).own_text, 0);
  EXPECT_TRUE(effort_of(rule, model_of(12, 768)).chosen);
}

TEST(CalibrationEffort, leaves_what_is_given) {
  Job::Compress rule;
  rule.units = LossUnits::residual;
  rule.own_text = 100;
  const CalibrationEffort effort = effort_of(rule, model_of(12, 768));

  EXPECT_EQ(effort.units, LossUnits::residual);
  EXPECT_EQ(effort.own_text, 100);
  EXPECT_FALSE(effort.chosen);
}

TEST(CalibrationEffort, is_for_what_weighs_layers_and_runs_the_model) {
  Job::Compress rule;
  EXPECT_EQ(effort_of(rule, model_of(12, 768), true).units, LossUnits::residual);
  for (const auto algorithm : {CompressionAlgorithm::paper_code, CompressionAlgorithm::oscar}) {
    rule.algorithm = algorithm;
    EXPECT_EQ(effort_of(rule, model_of(12, 768)).units, LossUnits::residual);
    EXPECT_EQ(effort_of(rule, model_of(12, 768)).own_text, 0);
    EXPECT_FALSE(effort_of(rule, model_of(12, 768)).chosen);
  }
}

TEST(CalibrationEffort, of_codecs) {
  Job::Archive rule;
  const CalibrationEffort small = choose_effort(rule, model_of(12, 768), 1500);
  EXPECT_EQ(small.units, LossUnits::measured);
  EXPECT_EQ(small.own_text, 1500);
  EXPECT_TRUE(small.chosen);
  const CalibrationEffort large = choose_effort(rule, model_of(80, 8192), 100'000);
  EXPECT_EQ(large.units, LossUnits::residual);
  EXPECT_EQ(large.own_text, 0);
  EXPECT_TRUE(large.chosen);
  rule.effort = Effort::full;
  EXPECT_EQ(choose_effort(rule, model_of(80, 8192), 100'000).own_text, 12288);
  EXPECT_FALSE(choose_effort(rule, model_of(80, 8192), 100'000).chosen);
  rule.own_text = 7;
  EXPECT_EQ(choose_effort(rule, model_of(80, 8192), 100'000).own_text, 7);
  rule = {};
  rule.algorithm = ArchiveAlgorithm::kvtc;
  EXPECT_EQ(choose_effort(rule, model_of(12, 768), 1500).units, LossUnits::residual);
  EXPECT_EQ(choose_effort(rule, model_of(12, 768), 1500).own_text, 0);
  EXPECT_FALSE(choose_effort(rule, model_of(12, 768), 1500).chosen);
}

}  // namespace
}  // namespace headspan
