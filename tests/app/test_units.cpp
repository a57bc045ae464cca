// Which units a job has, and what they are called.
#include <utility>

#include <gtest/gtest.h>

#include "app/unit.h"

namespace headspan {
namespace {

Job job_of(const std::string& path) {
  Job job;
  job.model.path = path;
  job.model.init = {"pretrained"};
  job.output.directory = "out";
  return job;
}

TEST(Units, OfAPathAreNamedAfterItAndTheFolderAbove) {
  const std::vector<Unit> units = list_units(job_of("models/tiny/step3000/"));

  ASSERT_EQ(units.size(), 1u);
  EXPECT_EQ(units[0].result_path(job_of("")), "out/tiny/step3000.h5");
  EXPECT_EQ(units[0].gram_path(job_of("")), "out/tiny/step3000.gram.h5");
}

TEST(Units, TellTheStepThatTheFolderNames) {
  const std::pair<const char*, std::int64_t> names[] = {{"step3000", 3000},
                                                        {"stage1-step1000-tokens5B", 1000},
                                                        {"step-12", 12},
                                                        {"step_0", 0},
                                                        {"main", -1},
                                                        {"step", -1},
                                                        {"footstep7", -1},
                                                        {"footstep7-step8", 8},
                                                        {"step12345678901234567890", -1}};
  for (const auto& [name, step] : names)
    EXPECT_EQ(list_units(job_of(std::string("models/") + name)).at(0).step, step) << name;
}

TEST(Units, OfBothKindsOfWeightsHaveTheirOwnResults) {
  Job job = job_of("models/step7");
  job.model.init = {"pretrained", "random"};

  const std::vector<Unit> units = list_units(job);

  ASSERT_EQ(units.size(), 2u);
  EXPECT_FALSE(units[0].random);
  EXPECT_TRUE(units[1].random);
  EXPECT_EQ(units[1].result_path(job), "out/models/step7-random.h5");
}

}  // namespace
}  // namespace headspan
