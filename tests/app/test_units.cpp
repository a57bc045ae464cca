// Which units a job has, and what they are called.
#include <utility>

#include <gtest/gtest.h>

#include "app/job/unit.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

Job job_of(const std::string& path) {
  Job job;
  job.model.path = path;
  job.model.init = {"pretrained"};
  job.output.directory = "out";
  return job;
}

std::string result_of(const Job& job) { return list_units(job).at(0).result_path(job); }

TEST(Units, OfAPathAreNamedAfterItsFolder) {
  const Job job = job_of("models/tiny/step3000/");

  EXPECT_EQ(result_of(job), "out/tiny/step3000.h5");
  EXPECT_EQ(list_units(job).at(0).gram_path(job), "out/tiny/step3000.gram.h5");
  EXPECT_EQ(result_of(job_of("/data/Llama-3.2-1B")), "out/Llama-3.2-1B/Llama-3.2-1B.h5");
  EXPECT_EQ(result_of(job_of("/data/pythia-1b-step1000/")), "out/pythia-1b-step1000/pythia-1b-step1000.h5");
  EXPECT_EQ(result_of(job_of("/runs/mine/checkpoint-500")), "out/mine/checkpoint-500.h5");
  EXPECT_EQ(result_of(job_of("/runs/OLMo-2/stage1-step1000-tokens5B")),
            "out/OLMo-2/stage1-step1000-tokens5B.h5");
  EXPECT_EQ(result_of(job_of("/hub/models--meta-llama--Llama-3.2-1B/snapshots/4e20de36")),
            "out/meta-llama--Llama-3.2-1B/4e20de36.h5");
  EXPECT_EQ(result_of(job_of("/step1000")), "out/model/step1000.h5");
}

TEST(Units, OfAManifestAreNamedByIt) {
  const TempFolder folder("units");
  Job job = job_of("");
  job.model.manifest = folder.write("m.tsv",
                                    "name\tstep\ttokens\tpath\trepository\n"
                                    "a\t0\t\t/data/mine/first\t\nb\t1\t\t/data/mine/second\torg/name\n"
                                    "c\t2\t\t/hub/models--org--cached/snapshots/4e20de36\t\n");

  const std::vector<Unit> units = list_units(job);
  job.model.name = "Mine 1B";
  const std::vector<Unit> named = list_units(job);

  const char* expected[] = {"out/mine/a.h5", "out/org--name/b.h5", "out/org--cached/c.h5"};
  for (std::size_t u = 0; u < 3; ++u) {
    EXPECT_EQ(units.at(u).result_path(job), expected[u]);
    EXPECT_EQ(named.at(u).result_path(job), "out/Mine 1B/" + units[u].name + ".h5");
  }
}

TEST(Units, TakeTheNameThatTheJobGives) {
  Job job = job_of("/data/Llama-3.2-1B");
  const std::string identity = unit_identity(job, list_units(job).at(0));
  job.model.name = "llama";

  EXPECT_EQ(result_of(job), "out/llama/Llama-3.2-1B.h5");
  EXPECT_EQ(unit_identity(job, list_units(job).at(0)), identity);  // the numbers are the same
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
                                                        {"checkpoint-500", 500},
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
