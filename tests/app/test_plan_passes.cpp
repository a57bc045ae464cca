// Passes over the tokens for GPUs of any memory: that all is summed once, that each pass fits, and that more
// memory never means more forwards.
#include <algorithm>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

#include "app/plan/passes.h"

namespace headspan {
namespace {

ModelConfig small_config() {
  ModelConfig config;
  config.model_type = "llama";
  config.layers = 4;
  config.hidden_size = 512;
  config.mlp_size = 1024;
  config.heads = 8;
  config.kv_heads = 4;
  config.head_size = 64;
  config.vocab_size = 1000;
  return config;
}

constexpr double kQueryColumns = 4 * 8 * 64, kKeyColumns = 4 * 4 * 64;

/// How often the model runs over a token.
std::int64_t forwards_of(const std::vector<DeviceShare>& passes) {
  std::int64_t forwards = 0;
  for (const DeviceShare& pass : passes)
    if (pass.parts[0] == Part::fit) ++forwards;  // a pass over the held-out part alone runs other tokens
  return forwards;
}

/// Stripes of each stream and part, by how many the Gram is cut into.
using Covered = std::map<std::pair<std::size_t, Part>, std::vector<std::int64_t>>;

void expect_all_summed_once(const std::vector<DeviceShare>& passes, std::size_t streams, bool heldout) {
  Covered covered;
  std::map<std::pair<std::size_t, Part>, std::int64_t> pieces;
  for (const DeviceShare& pass : passes)
    for (const std::size_t stream : pass.streams)
      for (const Part part : pass.parts) {
        covered[{stream, part}].push_back(pass.slice.number);
        pieces[{stream, part}] = pass.slice.of;
      }
  EXPECT_EQ(covered.size(), streams * (heldout ? 2 : 1));
  for (auto& [gram, numbers] : covered) {
    std::sort(numbers.begin(), numbers.end());
    ASSERT_EQ(static_cast<std::int64_t>(numbers.size()), pieces[gram]);
    for (std::size_t i = 0; i < numbers.size(); ++i) EXPECT_EQ(numbers[i], static_cast<std::int64_t>(i));
  }
}

class Passes : public testing::TestWithParam<GroupShape> {};

TEST_P(Passes, SumEverythingOnceInTheMemoryThereIs) {
  const Job job;
  const ModelConfig config = small_config();
  for (const bool heldout : {false, true}) {
    const PassSetting setting{job, config, Dtype::float32, heldout, 1024, GetParam()};
    const double beside = bytes_beside_passes(setting);
    std::int64_t forwards = 1, before = 1;
    for (int step = 0; step < 85; ++step) {
      const double room = 4e9 * std::pow(0.97, step);
      const std::vector<DeviceShare> passes = plan_passes(setting, beside + room);
      if (passes.empty()) {  // and never again, with less
        EXPECT_TRUE(plan_passes(setting, beside + 0.9 * room).empty());
        break;
      }
      expect_all_summed_once(passes, job.predict.streams.size(), heldout);
      for (const DeviceShare& pass : passes) EXPECT_LE(pass_bytes(setting, pass), room);
      forwards = forwards_of(passes);
      EXPECT_GE(forwards, before);
      before = forwards;
    }
    EXPECT_GT(forwards, 1);  // the loop has come to where one forward is not enough
    EXPECT_TRUE(plan_passes(setting, beside).empty());
  }
}

TEST_P(Passes, TakeTheHeldOutPartAloneBeforeTheyTakeAForwardMore) {
  const Job job;
  const ModelConfig config = small_config();
  const PassSetting setting{job, config, Dtype::float32, true, 1024, GetParam()};
  const DeviceShare all{{0, 1, 2}, {Part::fit, Part::heldout}, {}}, fit{{0, 1, 2}, {Part::fit}, {}};
  const double beside = bytes_beside_passes(setting);

  const auto enough = plan_passes(setting, beside + pass_bytes(setting, all) + 1);  // of rounding
  const auto less = plan_passes(setting, beside + pass_bytes(setting, all) - 1);

  EXPECT_EQ(enough.size(), 1U);
  ASSERT_EQ(less.size(), 2U);
  EXPECT_EQ(less[0].parts, std::vector<Part>{Part::fit});
  EXPECT_EQ(less[1].parts, std::vector<Part>{Part::heldout});
  EXPECT_EQ(less[0].streams, all.streams);
  EXPECT_LE(pass_bytes(setting, fit), pass_bytes(setting, all));
}

TEST_P(Passes, HoldATriangleOfEachGramAtLeast) {
  const Job job;
  const ModelConfig config = small_config();
  const PassSetting setting{job, config, Dtype::float32, true, 1024, GetParam()};
  const auto bytes = [&](std::size_t stream, std::vector<Part> parts) {
    return pass_bytes(setting, {{stream}, std::move(parts), {}});
  };
  const auto triangle = [&](double columns) {
    return 8 * columns * columns / 2 / static_cast<double>(GetParam().ranks);
  };

  for (const auto& [stream, columns] : {std::pair<std::size_t, double>{0, kKeyColumns}, {1, kQueryColumns}}) {
    const double part = bytes(stream, {Part::fit, Part::heldout}) - bytes(stream, {Part::fit});
    EXPECT_GE(part, triangle(columns));
    EXPECT_LE(part, 8 * columns * columns + 4 * columns * 1e5);
  }
}

INSTANTIATE_TEST_SUITE_P(Groups, Passes,
                         testing::Values(GroupShape{1, 1, {1, 1}}, GroupShape{4, 1, {2, 2}},
                                         GroupShape{6, 2, {3, 2}}));

TEST(PassBytes, AreSumsRowsThatWaitAndOperands) {
  const Job job;
  const ModelConfig config = small_config();
  const PassSetting alone{job, config, Dtype::float32, true, 1024, {1, 1, {1, 1}}};
  // Stripes of 256 columns from the diagonal down: of k 4 + 3 + 2 + 1 squares, of q 8 + 7 + .. + 1. Of a
  // token wait 32768 bytes and 16384 are multiplied: 128 MiB hold ten times 256 tokens.
  const double sums = 8 * 256 * 256, mib = 1 << 20, panel = 2560;

  EXPECT_DOUBLE_EQ(
      pass_bytes(alone, {{0, 1}, {Part::fit, Part::heldout}, {}}),
      2 * (sums * (10 + 36) + (panel + 2 * 1024) * (1024 + 2048) * 4) + 1.5 * panel * 2048 * 8 + 256 * mib);
  EXPECT_DOUBLE_EQ(pass_bytes(alone, {{2}, {Part::heldout}, {}}),
                   sums * 10 + (panel + 2 * 1024) * 1024 * 4 + 1.5 * panel * 1024 * 8 + 256 * mib);
}

TEST(PassBytes, OfRanksAreThoseOfTheFullestAndOfWhatItGathers) {
  Job job;
  job.predict.precision = Precision::split;
  const ModelConfig config = small_config();
  const PassSetting four{job, config, Dtype::float32, false, 1024, {4, 2, {2, 2}}};
  // Of k two stripes of 512 and 256 rows, of q four of 1024 to 256. Of a token wait 4096 bytes and 32768 are
  // multiplied: 128 MiB hold 14 times 256 tokens.
  const double sums = 8 * 256 * 256, mib = 1 << 20, panel = 3584, fullest = 1.5 * panel;
  const double waiting = (panel / 4 + 2 * 512) * (1024 + 2048) * 4;
  const double own = fullest / 4 * 2048 * 4, rows = fullest * 1024, columns = fullest * 1024;

  EXPECT_DOUBLE_EQ(
      pass_bytes(four, {{0, 1}, {Part::fit}, {}}),
      sums * (3 + 10) + waiting + 2 * (3 * own + (rows + columns) * 4) + (rows + columns) * 8 + 1024 * mib);
}

TEST(PassBytes, BesideThemAreWeightsActivationsAndLibraries) {
  const Job job;
  const ModelConfig config = small_config();
  // Without what comes behind the last capture: o_proj and MLP of the last layer, the last norm and the
  // logits.
  const double gains = (4 + 3) * 512, projections = 512 * (512 + 2 * 256), mlp = 3 * 512 * 1024,
               matrices = 1000 * 512 + 4 * projections + 3 * (512 * 512 + mlp), libraries = 1.5 * (1 << 30);

  EXPECT_DOUBLE_EQ(bytes_beside_passes({job, config, Dtype::float32, true, 1024, {1, 1, {1, 1}}}),
                   4 * (gains + matrices) + 1024 * (4 * 512 + 2 * 1024) * 4 + libraries);
  EXPECT_DOUBLE_EQ(bytes_beside_passes({job, config, Dtype::float32, true, 1024, {4, 2, {2, 2}}}),
                   4 * (gains + matrices / 2) + 1024 * (4 * 512 + 1024) * 4 + libraries);
}

TEST(PlanPasses, OfTwoRunsTakeStreamsThatAreNeighbours) {
  const Job job;
  const ModelConfig config = small_config();
  const PassSetting setting{job, config, Dtype::float32, false, 1024, {1, 1, {1, 1}}};
  const double all = pass_bytes(setting, {{0, 1, 2}, {Part::fit}, {}});

  const auto passes = plan_passes(setting, bytes_beside_passes(setting) + all - 1);

  ASSERT_EQ(passes.size(), 2U);
  EXPECT_EQ(passes[0].streams, (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(passes[1].streams, (std::vector<std::size_t>{2}));
}

TEST(PassName, SaysStreamsPartsAndStripes) {
  const Job job;
  const ModelConfig config = small_config();
  const PassSetting setting{job, config, Dtype::float32, true, 1024, {4, 1, {2, 2}}};

  EXPECT_EQ(pass_name(setting, {{0, 2}, {Part::fit, Part::heldout}, {}}), "k,v fit,heldout");
  EXPECT_EQ(pass_name(setting, {{1}, {Part::heldout}, {2, 5}}), "q heldout 3/5 on 2x2");
}

}  // namespace
}  // namespace headspan
