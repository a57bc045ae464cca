// capture_grams on the model's device against capture_grams in host memory, from tokens to Grams, for every
// layout of the ranks: on the CPU, and on GPUs if each rank has one.
#include <cmath>
#include <map>
#include <set>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "app/capture/capture.h"
#include "app/sources/gram_source.h"
#include "base/log.h"
#include "dist/comm/agreement.h"
#include "dist/comm/gpu.h"
#include "model/golden.h"
#include "model/types/read_config.h"
#include "model/weights/weight_loader.h"
#include "support/synthetic.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

/// Returns 14 sequences of 1 to 9 tokens, every third held out: of many ranks some have no batch, or no token
/// of a part.
Sample make_sample(std::int64_t vocabulary) {
  Sample sample;
  for (std::int64_t s = 0, start = 0; s < 14; ++s) {
    const std::int64_t length = 1 + s * 5 % 9;
    Sequence sequence{};
    sequence.start = start;
    sequence.length = length;
    start += length;
    sample.sequences.push_back(sequence);
    sample.heldout.push_back(s % 3 == 2 ? 1 : 0);
    auto& tokens = sample.tokens.emplace_back();
    for (std::int64_t t = 0; t < length; ++t) tokens.push_back((s * 37 + t * 11 + 5) % vocabulary);
  }
  return sample;
}

/// Expects equality up to the order of sums in FP64.
void expect_same(const HeadGram& gram, const HeadGram& expected) {
  ASSERT_EQ(gram.tokens, expected.tokens);
  const std::size_t n = gram.mean.size();
  const std::vector<double> a = gather_symmetric(gram.matrix), b = gather_symmetric(expected.matrix);
  double worst = 0;
  for (std::size_t j = 0; j < n; ++j) {
    EXPECT_NEAR(gram.mean[j], expected.mean[j], 1e-14);
    for (std::size_t i = 0; i < n; ++i)
      worst = std::max(worst, std::abs(a[i + j * n] - b[i + j * n]) / std::sqrt(b[i + i * n] * b[j + j * n]));
  }
  EXPECT_LT(worst, 1e-13);
}

class DeviceCapture : public testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == at::kCPU) return;
    const int fewest = world_.min(visible_gpus().count);
    if (fewest < world_.size())
      GTEST_SKIP() << world_.size() << " ranks take as many GPUs; there are " << fewest;
    gpu_ = world_.rank();
    device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*gpu_));
  }

  Transformer load(const ProcessLayout& processes) const {
    return Transformer::load(config_, checkpoint_, {Dtype::float32, {config_.layers, false}, device_},
                             processes.tensor_device(), processes.data());
  }

  /// Asks for Grams on the device.
  CaptureRequest keys_and_values() const {
    CaptureRequest request{{Stream::k, Stream::v}};
    request.batch_tokens = 12;
    request.on_device = true;
    return request;
  }

  const Comm world_ = Comm::duplicate(MPI_COMM_WORLD);
  const std::string folder_ = golden_folder("llama_gqa");
  const ModelConfig config_ = read_model_config(folder_ + "/config.json");
  const Checkpoint checkpoint_ = Checkpoint::open(folder_);
  const Sample sample_ = make_sample(config_.vocab_size);
  const Log silent_{false};
  std::optional<int> gpu_;
  at::Device device_ = at::kCPU;
};

INSTANTIATE_TEST_SUITE_P(On, DeviceCapture, testing::Values(at::kCPU, at::kCUDA),
                         [](const auto& info) { return info.param == at::kCPU ? "cpu" : "gpu"; });

constexpr Part kFit = Part::fit, kHeldout = Part::heldout;

/// Passes over two streams: one, part by part, and stream by stream with the first in stripes.
const std::vector<std::vector<DeviceShare>> kPasses{
    {},
    {{{0, 1}, {kFit}, {}}, {{0, 1}, {kHeldout}, {}}},
    {{{0}, {kFit}, {0, 2}}, {{0}, {kFit}, {1, 2}}, {{0}, {kHeldout}, {}}, {{1}, {kFit, kHeldout}, {}}}};

TEST_P(DeviceCapture, AgreesWithTheHost) {
  for (const int t : {1, 2})
    for (const ProcessGrid shape : all_grids(world_.size())) {
      if (world_.size() % t != 0 || config_.kv_heads % t != 0) continue;
      SCOPED_TRACE("tensor parallel " + std::to_string(t) + ", " + std::to_string(shape.rows) + "x" +
                   std::to_string(shape.columns));
      const ProcessLayout processes(world_, 1, t, GridShape{shape.rows, shape.columns}, gpu_);
      for (const bool by_layer : {false, true}) {
        const auto model =
            Transformer::load(config_, checkpoint_,
                              {by_layer ? Dtype::bfloat16 : Dtype::float32, {config_.layers, true}, device_},
                              processes.tensor_device(), processes.data());
        CaptureRequest request;
        request.streams = {Stream::k, Stream::v};  // queries only for what attention does with them
        request.batch_tokens = 12;
        request.skip_first = 1;
        request.by_layer = by_layer;
        const auto capture = [&](bool on_device, AttentionSums& sums) {
          request.on_device = on_device;
          request.attention = &sums;
          Progress progress(silent_, "forward", "tokens", sample_.total());
          Profile profile;
          return capture_grams<float>(model, sample_, request, processes, progress, profile);
        };
        AttentionSums of_host(config_.layers, config_.heads, config_.kv_heads, config_.head_size),
            of_device(config_.layers, config_.heads, config_.kv_heads, config_.head_size);

        const std::vector<StreamGrams> expected = capture(false, of_host);
        const std::vector<StreamGrams> grams = capture(true, of_device);

        ASSERT_EQ(grams.size(), expected.size());
        for (std::size_t s = 0; s < grams.size(); ++s) {
          expect_same(grams[s].fit, expected[s].fit);
          expect_same(*grams[s].heldout, *expected[s].heldout);
        }
        EXPECT_EQ(of_device.sums().query, of_host.sums().query);
      }
    }
}

// A pass over one part runs other batches, which in float64 changes its values no more than rounding does.
TEST_P(DeviceCapture, InSeveralPassesAgreesWithTheHost) {
  for (const int t : {1, 2}) {
    if (world_.size() % t != 0) continue;
    SCOPED_TRACE("tensor parallel " + std::to_string(t));
    const ProcessLayout processes(world_, 1, t, std::nullopt, gpu_);
    const auto model =
        Transformer::load(config_, checkpoint_, {Dtype::float64, {config_.layers, true}, device_},
                          processes.tensor_device(), processes.data());
    CaptureRequest request;
    request.streams = {Stream::k, Stream::v};
    request.batch_tokens = 12;
    const auto capture = [&](std::vector<double>& query) {
      Progress progress(silent_, "forward", "tokens", sample_.total());
      Profile profile;
      AttentionSums sums(config_.layers, config_.heads, config_.kv_heads, config_.head_size);
      request.attention = &sums;
      auto grams = capture_grams<double>(model, sample_, request, processes, progress, profile);
      query = sums.sums().query;
      processes.group().sum(query.data(), static_cast<std::int64_t>(query.size()));
      return grams;
    };
    for (const bool by_layer : {false, true})
      for (const auto& passes : kPasses) {
        std::vector<double> expected_query, query;
        request.by_layer = by_layer;
        request.on_device = false;
        request.passes = {};
        const std::vector<StreamGrams> expected = capture(expected_query);
        request.on_device = true;
        request.passes = passes;
        const std::vector<StreamGrams> grams = capture(query);
        ASSERT_EQ(grams.size(), expected.size());
        for (std::size_t s = 0; s < grams.size(); ++s) {
          expect_same(grams[s].fit, expected[s].fit);
          expect_same(*grams[s].heldout, *expected[s].heldout);
        }
        for (std::size_t i = 0; i < query.size(); ++i)
          ASSERT_NEAR(query[i], expected_query[i], 1e-12 * (1 + std::abs(expected_query[i])));
      }
  }
}

// Grams of which the last pass has everything stay; the others come to the host.
TEST_P(DeviceCapture, LeavesTheGramsOfTheLastPassOnTheDevice) {
  const ProcessLayout processes(world_, 1, 1, std::nullopt, gpu_);
  const Transformer model = load(processes);
  CaptureRequest request = keys_and_values();
  const std::vector<std::set<std::size_t>> resident_streams{{0, 1}, {}, {1}};
  for (std::size_t p = 0; p < kPasses.size(); ++p) {
    request.passes = kPasses[p];
    std::map<std::size_t, ResidentGrams> resident;
    const auto capture = [&](std::map<std::size_t, ResidentGrams>* stay) {
      Progress progress(silent_, "forward", "tokens", sample_.total());
      Profile profile;
      request.resident = stay;
      return capture_grams<float>(model, sample_, request, processes, progress, profile);
    };
    std::vector<StreamGrams> expected = capture(nullptr);
    const std::vector<StreamGrams> grams = capture(&resident);
    for (std::size_t s = 0; s < 2; ++s) {
      ASSERT_EQ(resident.count(s), resident_streams[p].count(s));
      if (resident.count(s) > 0) {
        EXPECT_EQ(grams[s].fit.tokens, 0);
        RegressionData data = resident.at(s).take_data(stream_layout(config_, request.streams[s]), {});
        resident.at(s).copy_all_to_host(data);
        expect_same(data.fit, expected[s].fit);
        recentre(*expected[s].heldout, expected[s].fit.mean);
        expect_same(*data.heldout, *expected[s].heldout);
        continue;
      }
      expect_same(grams[s].fit, expected[s].fit);
      expect_same(*grams[s].heldout, *expected[s].heldout);
    }
  }
}

// A run that stops at every round and is started again until it is done: as if it had never been stopped.
TEST_P(DeviceCapture, ResumesInAnyPass) {
  const TempFolder results("device_capture");
  const ProcessLayout processes(world_, 1, 1, std::nullopt, gpu_);
  const Transformer model = load(processes);
  CaptureRequest request = keys_and_values();
  Job job;
  job.output.directory = world_.broadcast(results.path("results"), 0);
  job.run.time_limit = 1e-9;
  Unit unit;
  unit.model_name = "model";
  unit.name = "unit";
  std::vector<GramStream> streams;
  for (const Stream stream : {Stream::k, Stream::v})
    streams.push_back(gram_stream({stream, CapturePoint::roped, Dtype::float32, Precision::float64, 0},
                                  stream_layout(config_, stream), true));
  for (const auto& passes : kPasses) {
    request.passes = passes;
    const std::vector<std::string> names(passes.size(), "pass");
    const auto capture = [&](const UnitState* state) {
      Progress progress(silent_, "forward", "tokens", sample_.total());
      Profile profile;
      request.state = state;
      return capture_grams<float>(model, sample_, request, processes, progress, profile);
    };
    const std::vector<StreamGrams> expected = capture(nullptr);
    std::vector<StreamGrams> grams;
    std::size_t runs = 0;
    for (; grams.empty(); ++runs) {
      RunClock clock(job.run);
      Profile unused;
      const InputWatch none(std::vector<std::string>{});
      const UnitRun run{job, unit, processes, clock, silent_, unused, nullptr, none};
      const UnitState state(run, streams, "", nullptr, names);
      try {
        grams = capture(&state);
      } catch (const Stopped& stop) {
        EXPECT_TRUE(stop.state_saved);
      }
    }
    EXPECT_GT(runs, std::max<std::size_t>(2, passes.size()));
    for (std::size_t s = 0; s < grams.size(); ++s)
      for (const bool heldout : {false, true}) {
        const HeadGram &gram = heldout ? *grams[s].heldout : grams[s].fit,
                       &whole = heldout ? *expected[s].heldout : expected[s].fit;
        EXPECT_EQ(gram.mean, whole.mean);
        EXPECT_EQ(gather_symmetric(gram.matrix), gather_symmetric(whole.matrix));
      }
    agree(world_, [&] {
      if (world_.is_root()) remove_state(job, unit);
    });
  }
}

}  // namespace
}  // namespace headspan
