// Which units a job has, and what they are called.
#include <utility>

#include <gtest/gtest.h>

#include "app/job/unit.h"
#include "io/hdf5/h5_file.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

Job job_of(const std::string& path) {
  Job job;
  job.model.path = path;
  job.model.init = {WeightSource::pretrained};
  job.output.directory = "out";
  return job;
}

std::string result_of(const Job& job) { return list_units(job).at(0).result_path(job.output.directory); }

TEST(Units, OfAPathAreNamedAfterItsFolder) {
  const Job job = job_of("models/tiny/step3000/");

  EXPECT_EQ(result_of(job), "out/tiny/step3000.h5");
  EXPECT_EQ(list_units(job).at(0).gram_path(job.output.directory), "out/tiny/step3000.gram.h5");
  EXPECT_EQ(result_of(job_of("/data/Llama-3.2-1B")), "out/Llama-3.2-1B/Llama-3.2-1B.h5");
  EXPECT_EQ(result_of(job_of("/data/pythia-1b-step1000/")), "out/pythia-1b-step1000/pythia-1b-step1000.h5");
  EXPECT_EQ(result_of(job_of("/runs/mine/checkpoint-500")), "out/mine/checkpoint-500.h5");
  EXPECT_EQ(result_of(job_of("/runs/OLMo-2/stage1-step1000-tokens5B")),
            "out/OLMo-2/stage1-step1000-tokens5B.h5");
  EXPECT_EQ(result_of(job_of("/hub/models--meta-llama--Llama-3.2-1B/snapshots/4e20de36")),
            "out/meta-llama--Llama-3.2-1B/4e20de36.h5");
  EXPECT_EQ(result_of(job_of("/step1000")), "out/model/step1000.h5");
  EXPECT_EQ(result_of(job_of("/runs/mine/step-1000")), "out/mine/step-1000.h5");
  EXPECT_EQ(result_of(job_of("/data/step-by-step-2b")), "out/step-by-step-2b/step-by-step-2b.h5");
  EXPECT_EQ(result_of(job_of("/data/step-by-step-2")), "out/step-by-step-2/step-by-step-2.h5");
  EXPECT_EQ(result_of(job_of("/data/stagecoach-step3")), "out/stagecoach-step3/stagecoach-step3.h5");
}

/// An HDF5 file with these attributes at its root.
std::string write_attributes(const TempFolder& folder, const std::string& name,
                             const std::vector<std::pair<std::string, H5Value>>& attributes) {
  H5File file = H5File::create(folder.path(name));
  for (const auto& [attribute, value] : attributes) file.write_attribute("/", attribute, value);
  file.close();
  return folder.path(name);
}

Job job_of_grams(const Words& paths) {
  Job job;
  job.grams.paths = paths;
  job.output.directory = "out";
  return job;
}

TEST(Units, OfGramsAreWhatTheseSay) {
  const TempFolder folder("units");
  const Job job = job_of_grams(
      {write_attributes(folder, "a-random.gram.h5",
                        {{"model_name", std::string("OLMo-2")},
                         {"step", std::int64_t{3000}},
                         {"training_tokens", std::int64_t{12288000}},
                         {"training_seed", std::int64_t{2}},
                         {"init", std::string("random")},
                         {"validation_loss", 2.5},
                         {"tokens_sha256", std::string("aa")}}),
       write_attributes(folder, "b.gram.h5",
                        {{"model_name", std::string("b")}, {"tokens_sha256", std::string("bb")}})});

  const Unit unit = list_units(job).at(0);

  EXPECT_EQ(unit.result_path(job.output.directory), "out/OLMo-2/a-random.h5");
  EXPECT_EQ(unit.step, 3000);
  EXPECT_EQ(unit.training_tokens, 12288000);
  EXPECT_EQ(unit.training_seed, 2);
  EXPECT_TRUE(unit.random);
  EXPECT_EQ(unit.validation_loss, 2.5);
  EXPECT_EQ(unit.tokens_sha256, "aa,bb");
}

TEST(Units, OfGramsThatSayNothingAreNamedAfterTheirFolder) {
  const TempFolder folder("units");
  const std::string silent = write_attributes(folder, "step7.gram.h5", {});
  for (const std::string& path : {silent, std::string("/runs/mine/step7.gram.h5")}) {  // the second is gone
    const Unit unit = list_units(job_of_grams({path})).at(0);

    EXPECT_EQ(unit.name, "step7");
    EXPECT_EQ(unit.step, 7);
    EXPECT_EQ(unit.training_tokens, -1);
    EXPECT_EQ(unit.training_seed, -1);
    EXPECT_FALSE(unit.random);
    EXPECT_EQ(unit.tokens_sha256, "");
  }
  EXPECT_EQ(result_of(job_of_grams({"/runs/mine/step7.gram.h5"})), "out/mine/step7.h5");
}

TEST(Units, OfGramsCannotLeadElsewhere) {
  const TempFolder folder("units");
  Job job = job_of_grams({write_attributes(folder, "a.gram.h5", {{"model_name", std::string("../..")}})});

  EXPECT_NE(input_error_of([&] {
              list_units(job);
            }).find("model_name = ../..: cannot name the folder of the results; give model.name"),
            std::string::npos);
  job.model.name = "mine";
  EXPECT_EQ(result_of(job), "out/mine/a.h5");
}

TEST(Units, OfGramsAreKnownWhetherTheJobSaysHowTheseWereMade) {
  Job job = job_of_grams({"/runs/mine/step7.gram.h5"});
  const Unit unit = list_units(job).at(0);
  const std::string identity = unit_identity(job, unit);
  job.predict.capture = CapturePoint::proj;
  job.predict.precision = Precision::split;

  EXPECT_EQ(unit_identity(job, unit), identity);
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
    EXPECT_EQ(units.at(u).result_path(job.output.directory), expected[u]);
    EXPECT_EQ(named.at(u).result_path(job.output.directory), "out/Mine 1B/" + units[u].name + ".h5");
  }
}

TEST(Units, OfOneFileAreRefused) {
  const TempFolder folder("units");
  Job job = job_of("");
  job.model.manifest =
      folder.write("m.tsv", "name\tstep\ttokens\tpath\nx.gram\t0\t\t/data/a\nx\t1\t\t/data/a\n");

  EXPECT_EQ(list_units(job).size(), 2u);
  job.output.save_gram = true;
  EXPECT_EQ(
      input_error_of([&] { list_units(job); }),
      job.model.manifest + ": name = x.gram: has its result where the Grams of x are saved; rename the row");
}

TEST(Units, TakeTheNameThatTheJobGives) {
  Job job = job_of("/data/Llama-3.2-1B");
  const std::string identity = unit_identity(job, list_units(job).at(0));
  job.model.name = "llama";

  EXPECT_EQ(result_of(job), "out/llama/Llama-3.2-1B.h5");
  EXPECT_EQ(unit_identity(job, list_units(job).at(0)), identity);  // the numbers are the same
}

TEST(Units, OfOlderResultsAreThoseOfTheDefaultsOfNewerKeys) {
  Job job;
  job.model.path = "/models/Llama-3.2-1B";
  const Unit unit = list_units(job).at(0);
  const std::string identity = unit_identity(job, unit);
  EXPECT_EQ(identity.find("similarity"), std::string::npos);
  EXPECT_EQ(identity.find("attention"), std::string::npos);

  job.attention.scores = true;
  EXPECT_EQ(unit_identity(job, unit), identity + "attention.scores = true\n");
  job.attention.scores = false;
  job.predict.similarity = {SimilarityMeasure::cka};
  EXPECT_NE(unit_identity(job, unit).find("\npredict.similarity = cka\n"), std::string::npos);
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
                                                        {"step-by-step-2b", -1},
                                                        {"checkpoint-500", 500},
                                                        {"step12345678901234567890", -1}};
  for (const auto& [name, step] : names)
    EXPECT_EQ(list_units(job_of(std::string("models/") + name)).at(0).step, step) << name;
}

TEST(Units, OfBothKindsOfWeightsHaveTheirOwnResults) {
  Job job = job_of("models/step7");
  job.model.init = {WeightSource::pretrained, WeightSource::random};

  const std::vector<Unit> units = list_units(job);

  ASSERT_EQ(units.size(), 2u);
  EXPECT_FALSE(units[0].random);
  EXPECT_TRUE(units[1].random);
  EXPECT_EQ(units[1].result_path(job.output.directory), "out/models/step7-random.h5");
}

}  // namespace
}  // namespace headspan
