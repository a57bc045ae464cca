#include <cmath>

#include <gtest/gtest.h>

#include "app/inspect/summary.h"
#include "io/hdf5/netcdf.h"
#include "stats/nulls/nulls.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
const std::vector<std::int64_t> kHeads{0, 1, 2, 3};

/// Writes one stream of four heads in three layers, with traps: large numbers that no figure may read. For
/// head 3 the sources 0 and 2 tie, and the pair with source 1 has no R².
class Sample {
 public:
  Sample() : path_(folder_.path("step7.h5")), file_(NetcdfFile::create(comm_, path_)) {
    for (const char* name :
         {"model_name", "model_type", "checkpoint", "init", "mode", "tokens_path", "source", "date_created"})
      file_.set_attribute("/", name, std::string("the ") + name);
    file_.set_attribute("/", "headspan_schema", std::string("1.0"));
    file_.set_attribute("/", "step", std::int64_t{7});
    file_.set_attribute("/", "training_tokens", std::int64_t{700});
    file_.define_dimension("k/target", kHeads);
    file_.define_dimension("k/source", kHeads);
    file_.define_coordinate("k/target_layer", "target", std::vector<std::int64_t>{0, 1, 1, 2});
    file_.set_attribute("k", "head_size", std::int64_t{2});
    file_.set_attribute("k", "hidden_size", std::int64_t{8});
    file_.set_attribute("k", "n_fit", std::int64_t{101});
    file_.set_attribute("k", "capture", std::string("roped"));
  }

  void write_r2() {
    write("r2", {kNan, 0.9, 0.9, 0.9,   // nothing is causal for head 0
                 0.2, kNan, 0.6, 0.9,   // best: 2
                 0.05, 0.1, kNan, 0.9,  // best: 1
                 0.3, kNan, 0.3, kNan});
    file_.write_root<std::uint8_t>("k/status", {"target", "source"},
                                   {16, 2, 0, 0, 1, 16, 0, 0, 12, 0, 16, 0, 0, 4, 0, 16});
    file_.write_root<double>("k/effective_rank", {"target"}, {1, 2, kNan, 1.5});
  }

  void write_heldout() {
    write("r2_heldout", {kNan, 0.8, 0.8, 0.8,   //
                         0.9, kNan, 0.5, 0.8,   //
                         0.8, -0.3, kNan, 0.8,  //
                         0.25, 0.8, 0.9, kNan});
  }

  ResultSummary summarise(std::int64_t n_heldout) {
    file_.set_attribute("k", "n_heldout", n_heldout);
    file_.close();
    return summarise_result(path_);
  }

  std::string path() const { return path_; }

 private:
  void write(const std::string& name, const std::vector<double>& values) {
    file_.write_root("k/" + name, {"target", "source"}, values);
  }

  Comm comm_ = Comm::duplicate(MPI_COMM_WORLD);
  TempFolder folder_{"summary"};
  std::string path_;
  NetcdfFile file_;
};

TEST(Summary, SaysWhatTheFileSays) {
  Sample sample;
  sample.write_r2();

  const ResultSummary result = sample.summarise(0);

  EXPECT_EQ(result.path, sample.path());
  EXPECT_EQ(result.schema, "1.0");
  EXPECT_EQ(result.model_name + result.checkpoint + result.mode + result.source,
            "the model_namethe checkpointthe modethe source");
  EXPECT_FALSE(result.random);
  EXPECT_EQ(result.step, 7);
  EXPECT_EQ(result.training_tokens, 700);
  ASSERT_EQ(result.streams.size(), 1u);
  const StreamSummary& k = result.streams[0];
  EXPECT_EQ(k.name + k.capture, "kroped");
  EXPECT_EQ(k.heads, 4);
  EXPECT_EQ(k.layers, 3);
  EXPECT_EQ(k.head_size, 2);
  EXPECT_EQ(k.n_fit, 101);
}

TEST(Summary, ReadsOnlyCausalPairs) {
  Sample sample;
  sample.write_r2();
  sample.write_heldout();

  const StreamSummary k = sample.summarise(50).streams[0];

  EXPECT_DOUBLE_EQ(k.found.mean_best, (0.6 + 0.1 + 0.3) / 3);
  EXPECT_DOUBLE_EQ(k.found.median_best, 0.3);
  EXPECT_DOUBLE_EQ(k.found.mean_best_heldout, (0.5 - 0.3 + 0.25) / 3);
  EXPECT_DOUBLE_EQ(k.found.median_best_heldout, 0.25);
  EXPECT_DOUBLE_EQ(k.found.mean_pair, (0.2 + 0.6 + 0.05 + 0.1 + 0.3 + 0.3) / 6);
  EXPECT_DOUBLE_EQ(k.found.share_above_tenth, 4.0 / 6);
  EXPECT_DOUBLE_EQ(k.found.share_above_half, 1.0 / 6);
  EXPECT_DOUBLE_EQ(k.adjusted_best, 1 - (1 - 1.0 / 3) * 100 / 98);
  EXPECT_DOUBLE_EQ(k.effective_rank, 1.5);
  EXPECT_EQ(k.flagged, 3);  // status 2, 1 and 12; neither 4 nor 16
}

TEST(Summary, AddsTheNulls) {
  Sample sample;
  sample.write_r2();
  sample.write_heldout();

  const StreamSummary k = sample.summarise(50).streams[0];

  EXPECT_DOUBLE_EQ(k.noise_floor, 2.0 / 100);
  EXPECT_DOUBLE_EQ(k.geometric_null, 2.0 / 8);
  EXPECT_DOUBLE_EQ(k.null.mean_pair, 0.02 + 0.98 * 0.25);
  EXPECT_DOUBLE_EQ(k.null.mean_best_heldout, PairNull(2, 8, 0).mean_best({2}));  // each has two sources
  EXPECT_DOUBLE_EQ(k.null.mean_best, 0.02 + 0.98 * k.null.mean_best_heldout);
  EXPECT_DOUBLE_EQ(k.null.median_best, 0.02 + 0.98 * k.null.median_best_heldout);
  EXPECT_GT(k.null.share_above_tenth, k.null.share_above_half);
}

TEST(Summary, HasNoHeldOutFiguresWithoutAHeldOutPart) {
  Sample sample;
  sample.write_r2();

  const StreamSummary k = sample.summarise(0).streams[0];

  EXPECT_TRUE(std::isnan(k.found.mean_best_heldout));
  EXPECT_TRUE(std::isnan(k.null.mean_best_heldout));
  EXPECT_FALSE(std::isnan(k.null.mean_best));
}

TEST(Summary, NamesWhatTheFileLacks) {
  Sample sample;
  sample.write_r2();

  const std::string line = input_error_of([&] { sample.summarise(50); });

  EXPECT_EQ(line,
            sample.path() + ": k/r2_heldout: is missing; this is no result of headspan, or it is damaged");
}

}  // namespace
}  // namespace headspan
