#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/provenance.h"

namespace headspan {
namespace {

/// Sets the Slurm variables of one test, and restores those of the job that runs the tests.
class Provenance : public testing::Test {
 protected:
  void SetUp() override {
    for (auto& [name, value] : saved_) {
      if (const char* text = std::getenv(name)) value = text;
      unsetenv(name);
    }
  }
  void TearDown() override {
    for (const auto& [name, value] : saved_) value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
  }

 private:
  std::pair<const char*, std::string> saved_[3] = {
      {"SLURM_JOB_ID", ""}, {"SLURM_ARRAY_JOB_ID", ""}, {"SLURM_ARRAY_TASK_ID", ""}};
};

TEST_F(Provenance, NamesProgramVersionAndCommit) {
  const std::string version = program_version();
  const auto dots = std::count(version.begin(), version.end(), '.');
  EXPECT_EQ(dots, 2) << program_version();
  const std::string commit = git_id().substr(0, git_id().find("-dirty"));
  EXPECT_TRUE(commit == "unknown" ||
              (commit.size() >= 12 && commit.find_first_not_of("0123456789abcdef") == std::string::npos))
      << git_id();
  EXPECT_EQ(program_name(), "headspan " + program_version() + " (git " + git_id() + ")");
}

TEST_F(Provenance, FormatsTheTimeInUtc) {
  const std::time_t before = std::time(nullptr);

  const std::string text = iso_time_utc();

  std::tm parts{};
  ASSERT_NE(strptime(text.c_str(), "%Y-%m-%dT%H:%M:%SZ", &parts), nullptr) << text;
  EXPECT_EQ(text.size(), 20u);
  EXPECT_GE(timegm(&parts), before);
  EXPECT_LE(timegm(&parts), std::time(nullptr));
}

TEST_F(Provenance, TakesTheJobIdFromSlurm) {
  setenv("SLURM_JOB_ID", "124", 1);
  EXPECT_EQ(job_id(), "124");

  setenv("SLURM_ARRAY_JOB_ID", "120", 1);
  setenv("SLURM_ARRAY_TASK_ID", "4", 1);
  EXPECT_EQ(job_id(), "120_4");
}

TEST_F(Provenance, MakesAJobIdThatCanNameAFile) {
  setenv("SLURM_JOB_ID", "../a b\n7.x-y_z", 1);
  EXPECT_EQ(job_id(), ".._a_b_7.x-y_z");

  setenv("SLURM_JOB_ID", std::string(300, '1').c_str(), 1);
  EXPECT_EQ(job_id(), std::string(kMaxJobIdLength, '1'));
}

TEST_F(Provenance, MakesAJobIdOfHostAndProcessWithoutSlurm) {
  EXPECT_EQ(job_id(), hostname() + "-" + std::to_string(getpid()));
}

}  // namespace
}  // namespace headspan
