// Jobs that calibrate and evaluate compressed caches: which keys suit each other.
#include <string>

#include <gtest/gtest.h>

#include "app/job/job_file.h"
#include "support/input_error.h"

namespace headspan {
namespace {

TEST(CompressionJob, RoundsToTheBitsThatAnAlgorithmHas) {
  const auto refused = [](const std::string& algorithm, const std::string& bits) {
    return input_error_of([&] {
      make_job(Command::calibrate, "a.ini",
               read_job_text("a.ini", "[model]\npath = m\n[compress]\nalgorithm = " + algorithm +
                                          "\nbits = " + bits + "\nplan = p.h5\n[tokens]\npath = t.bin\n"));
    });
  };
  const auto line = [](const std::string& algorithm, const std::string& bits, const std::string& instead) {
    return "a.ini: compress.bits = " + bits + ": is not for compress.algorithm = " + algorithm + "; " +
           instead;
  };
  for (const char* given :
       {"hadamard 5", "hadamard 2", "hadamard auto", "quantise 8", "quantise 3", "kivi auto", "kivi 2",
        "kivi 4", "oscar auto", "oscar 3", "rotated-q4 auto", "rotated-q8 auto"}) {
    const std::string text = given;
    EXPECT_EQ(refused(text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)), "nothing was refused")
        << text;
  }
  EXPECT_EQ(refused("hadamard", "8"), line("hadamard", "8", "give 5, 4, 3 or 2"));
  EXPECT_EQ(refused("hadamard", "3x8"), line("hadamard", "3x8", "give 5, 4, 3 or 2"));
  EXPECT_EQ(refused("quantise", "auto"), line("quantise", "auto", "give 8, 4 or 3"));
  EXPECT_EQ(refused("quantise", "5"), line("quantise", "5", "give 8, 4 or 3"));
  EXPECT_EQ(refused("kivi", "3"), line("kivi", "3", "give 4 or 2"));
  EXPECT_EQ(refused("oscar", "8"), line("oscar", "8", "give 4, 3 or 2"));
  EXPECT_EQ(refused("rotated-q4", "4"), line("rotated-q4", "4", "leave it out"));
  EXPECT_EQ(refused("rotated-q8", "16"), line("rotated-q8", "16", "leave it out"));
}

TEST(CompressionJob, CalibratesCodecsWithTheEffortOfTheModelsSize) {
  const auto job = [](const std::string& lines) {
    return make_job(
        Command::archive_calibrate, "a.ini",
        read_job_text("a.ini", "[model]\npath = m\n[tokens]\npath = t\n[archive]\ncodec = c.h5\n" + lines));
  };
  EXPECT_NE(to_ini(job(""), Command::archive_calibrate).find("\neffort = auto\nown_text = auto\n"),
            std::string::npos);
  EXPECT_EQ(job("effort = full\n").archive.effort, Effort::full);
  EXPECT_EQ(job("effort = quick\nown_text = 7\n").archive.own_text, 7);
}

TEST(CompressionJob, CalibratesWithTheEffortOfTheModelsSize) {
  const auto job = [](const std::string& lines) {
    return make_job(
        Command::calibrate, "a.ini",
        read_job_text("a.ini", "[model]\npath = m\n[tokens]\npath = t\n[compress]\nplan = p.h5\n" + lines));
  };
  EXPECT_NE(to_ini(job(""), Command::calibrate).find("\neffort = auto\nunits = auto\nown_text = auto\n"),
            std::string::npos);
  EXPECT_EQ(job("effort = full\n").compress.effort, Effort::full);
  EXPECT_EQ(job("effort = quick\nunits = measured\nown_text = 7\n").compress.own_text, 7);
  const auto of_grams = [](const std::string& lines) {
    return input_error_of([&] {
      make_job(Command::calibrate, "a.ini",
               read_job_text("a.ini", "[grams]\npaths = g\n[compress]\nplan = p.h5\n" + lines));
    });
  };
  EXPECT_EQ(of_grams("effort = full\n"),
            "a.ini: compress.effort = full: runs the model, and Grams are given; give model.path and "
            "tokens.path in "
            "place of grams.paths, or leave it out");
}

TEST(CompressionJob, PrefillsExactlyOnlyWhatIsCompressed) {
  const auto job = [](const std::string& lines) {
    return make_job(
        Command::evaluate, "a.ini",
        read_job_text("a.ini", "[model]\npath = m\n[evaluate]\nplan = p.h5\ntexts = t\n" + lines));
  };
  EXPECT_EQ(job("").evaluate.prefill, Prefill::compressed);
  EXPECT_EQ(job("prefill = exact\n").evaluate.prefill, Prefill::exact);
  EXPECT_EQ(input_error_of([&] { job("prefill = exact\ncache = full\n"); }),
            "a.ini: evaluate.prefill = exact: is for evaluate.cache = compressed; leave it out");
  EXPECT_EQ(input_error_of([&] { job("prefill = half\n"); }),
            "a.ini: evaluate.prefill = half: is not allowed; allowed: compressed|exact");
}

TEST(CompressionJob, OneFileServesAllCommandsOfArchives) {
  const std::string file =
      "[model]\npath = m\n[tokens]\npath = t\n[archive]\ncodec = c.h5\ngroup = 3\ninput = i\noutput = o\n"
      "bits = 1.5\ntokens = 5:9\n";
  for (const Command command :
       {Command::archive_calibrate, Command::archive_encode, Command::archive_decode}) {
    const Job job = make_job(command, "a.ini", read_job_text("a.ini", file));
    EXPECT_EQ(job.archive.codec, "c.h5");
    EXPECT_EQ(to_ini(job, command).find("tokens = 5:9") != std::string::npos,
              command == Command::archive_decode);
    EXPECT_EQ(to_ini(job, command).find("group = 3") != std::string::npos,
              command == Command::archive_calibrate);
  }
  EXPECT_EQ(input_error_of([&] {
              make_job(Command::evaluate, "a.ini", read_job_text("a.ini", file + "[evaluate]\nplan = p\n"));
            }),
            "a.ini: archive.codec = c.h5: is given beside evaluate.plan; give one of the two");
}

TEST(CompressionJob, CalibrationRunsOnCpus) {
  const std::string file =
      "[model]\npath = m\n[tokens]\npath = t\n[archive]\ncodec = c.h5\n[compress]\nplan = "
      "p.h5\n[run]\ndevice = ";
  for (const Command command : {Command::calibrate, Command::archive_calibrate}) {
    const auto make = [&](const std::string& device) {
      return make_job(command, "a.ini", read_job_text("a.ini", file + device + "\n"));
    };
    EXPECT_EQ(make("cpu").run.device, ComputeDevice::cpu);
    EXPECT_EQ(input_error_of([&] { make("cuda"); }),
              "a.ini: run.device = cuda: is for study and evaluate; leave it out, or give cpu");
  }
}

}  // namespace
}  // namespace headspan
