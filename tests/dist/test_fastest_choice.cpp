// Choices by speed, against the rules in the header. tests/app/test_blas_choice.py has OpenBLAS's kernels,
// tests/stats/test_product_kind.cpp the products of the Gram.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <omp.h>

#include "dist/fastest_choice.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

TEST(Fastest, IsTheUsualOneUnlessAnotherIsATenthFaster) {
  EXPECT_EQ(fastest("Zen", {{"Haswell", 109}, {"Zen", 100}}), "Zen");
  EXPECT_EQ(fastest("Zen", {{"Haswell", 111}, {"Zen", 100}}), "Haswell");
}

TEST(Fastest, IsTheFastestOfSeveral) {
  EXPECT_EQ(fastest("Prescott", {{"Haswell", 90}, {"Prescott", 12}, {"SkylakeX", 160}, {"Zen", 91}}),
            "SkylakeX");
}

TEST(Fastest, WorksHere) {
  EXPECT_EQ(fastest("SkylakeX", {{"Haswell", 50}}), "Haswell");
  EXPECT_EQ(fastest("Zen", {}), "Zen");
}

/// Chooses between "kernel" and "library" in a folder of its own; each measurement says `says`.
class KeptChoice : public ::testing::Test {
 protected:
  KeptChoice() { setenv("XDG_CACHE_HOME", folder_.path("cache").c_str(), 1); }
  ~KeptChoice() override { unsetenv("XDG_CACHE_HOME"); }

  std::string choose(const std::string& says, const std::string& versions = "1") {
    return kept_choice({"products", versions, {"kernel", "library"}}, [&] {
      ++measured_;
      return says;
    });
  }

  std::string file() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path("cache/headspan")))
      return entry.path().string();
    return "";
  }

  TempFolder folder_{"kept_choice"};
  int measured_ = 0;
};

TEST_F(KeptChoice, IsMeasuredOnce) {
  EXPECT_EQ(choose("library"), "library");
  EXPECT_EQ(choose("kernel"), "library");
  EXPECT_EQ(measured_, 1);
}

TEST_F(KeptChoice, IsMeasuredAgainForOtherVersions) {
  choose("library");
  EXPECT_EQ(choose("kernel", "2"), "kernel");
  EXPECT_EQ(choose("kernel"), "library");
}

TEST_F(KeptChoice, IsTheFirstOneOfProcessesThatMeasureAtTheSameTime) {
  const std::string slower = kept_choice({"products", "1", {"kernel", "library"}}, [&] {
    choose("library");  // meanwhile
    return "kernel";
  });
  EXPECT_EQ(slower, "library");
  EXPECT_EQ(choose("kernel"), "library");
}

TEST_F(KeptChoice, IsMeasuredAgainIfTheFileMakesNoSense) {
  choose("library");
  for (const char* text : {"", "neither\n"}) {
    std::ofstream(file()) << text;
    EXPECT_EQ(choose("kernel"), "kernel");
    EXPECT_EQ(choose("library"), "kernel");
  }
}

TEST_F(KeptChoice, IsNotKeptIfNothingCouldBeMeasured) {
  EXPECT_EQ(choose(""), "");
  EXPECT_EQ(choose("kernel"), "kernel");
}

TEST_F(KeptChoice, LeavesNoOtherFile) {
  choose("library");
  choose("kernel");
  const std::filesystem::directory_iterator files(folder_.path("cache/headspan"));
  EXPECT_EQ(std::distance(begin(files), end(files)), 1);
}

TEST_F(KeptChoice, NeedsNoFolder) {
  std::ofstream(folder_.path("cache")) << "a file";
  EXPECT_EQ(choose("library"), "library");
  setenv("XDG_CACHE_HOME", "/proc/nothing", 1);
  EXPECT_EQ(choose("kernel"), "kernel");
}

TEST(LeastSeconds, AreOfEachWayOnOneThread) {
  const auto work = [](int count) {
    return [count] {
      EXPECT_EQ(omp_get_max_threads(), 1);
      volatile double sum = 0;
      for (int i = 0; i < count; ++i) sum = sum + 1;
    };
  };
  omp_set_num_threads(3);
  const std::vector<double> seconds = least_seconds({work(100'000), work(10'000'000), work(1'000'000)});
  EXPECT_EQ(omp_get_max_threads(), 3);
  EXPECT_GT(seconds[0], 0);
  EXPECT_LT(seconds[0], seconds[2]);
  EXPECT_LT(seconds[2], seconds[1]);
}

}  // namespace
}  // namespace headspan
