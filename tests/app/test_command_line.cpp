#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "app/command_line.h"
#include "base/provenance.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

Request parse(std::vector<const char*> arguments) {
  arguments.insert(arguments.begin(), "headspan");
  return parse_command_line(static_cast<int>(arguments.size()), arguments.data());
}

std::string refusal(const std::vector<const char*>& arguments) {
  return input_error_of([&] { parse(arguments); });
}

TEST(CommandLine, AnswersHelpAndVersion) {
  EXPECT_EQ(parse({"--version"}).answer, program_name() + "\n");
  EXPECT_NE(parse({"--help"}).answer.find("headspan study [JOB.ini]"), std::string::npos);
  EXPECT_NE(parse({"study", "--help"}).answer.find("\n  limit = 30000\n      tokens to run (an integer"),
            std::string::npos)
      << parse({"study", "--help"}).answer;
  EXPECT_NE(parse({"inspect", "--help"}).answer.find("headspan inspect PATH"), std::string::npos);
  EXPECT_EQ(parse({"calibrate", "--help"}).command, Command::calibrate);
  EXPECT_EQ(parse({"-h"}).answer, parse({"--help"}).answer);
}

TEST(CommandLine, ListsTheKeysThatTheCommandReads) {
  for (const char* line : {"\n  manifest\n", "\n  select = all\n", "\n  init = pretrained\n"}) {
    EXPECT_NE(parse({"study", "--help"}).answer.find(line), std::string::npos) << line;
    for (const char* command : {"calibrate", "evaluate"})
      EXPECT_EQ(parse({command, "--help"}).answer.find(line), std::string::npos) << command << line;
  }
}

TEST(CommandLine, NeedsAKnownCommand) {
  EXPECT_EQ(refusal({}),
            "command line: names no command; one of study, calibrate, evaluate, plan, "
            "theory, archive calibrate, archive encode, archive decode, inspect, or --help");
  EXPECT_EQ(refusal({"studdy"}),
            "command line: 'studdy' is not a command; one of study, calibrate, evaluate, plan, theory, "
            "archive calibrate, archive encode, archive decode, inspect");
}

TEST(CommandLine, OverridesTheJobFile) {
  const TempFolder folder("command_line");
  const std::string file = folder.write(
      "j.ini", "[model]\npath = m\n[tokens]\npath = t\nlimit = 7\nseed = 2\n[output]\ndirectory = o\n");

  const Request request = parse({"study", file.c_str(), "--tokens.limit", "9", "--output.overwrite=true",
                                 "--model.path", "", "--model.manifest", "a b.tsv"});

  EXPECT_EQ(request.command, Command::study);
  EXPECT_TRUE(request.answer.empty());
  EXPECT_EQ(request.job.tokens.limit, 9);
  EXPECT_EQ(request.job.tokens.seed, 2);
  EXPECT_TRUE(request.job.output.overwrite);
  EXPECT_EQ(request.job.model.path, "");
  EXPECT_EQ(request.job.model.manifest, "a b.tsv");
}

TEST(CommandLine, ListsUnitsOfAStudyAlone) {
  EXPECT_FALSE(parse({"study", "--model.path=m", "--tokens.path=t", "--output.directory=o"}).units);
  EXPECT_TRUE(parse({"study", "--units", "--model.path=m", "--tokens.path=t", "--output.directory=o"}).units);
  EXPECT_EQ(
      refusal({"plan", "--ranks=1", "--units", "--model.path=m", "--tokens.path=t", "--output.directory=o"}),
      "command line: units: is not for plan; it is for study");
  EXPECT_EQ(refusal({"inspect", "--units", "job.ini"}),
            "command line: units: is not for inspect; it is for study");
}

TEST(CommandLine, ReadsOptionsThatAreNoKeys) {
  const std::vector<const char*> job{"study", "--model.path=m", "--tokens.path=t", "--output.directory=o"};
  const auto with = [&](std::vector<const char*> more) {
    more.insert(more.begin(), job.begin(), job.end());
    return more;
  };
  EXPECT_FALSE(parse(job).dry_run);
  EXPECT_TRUE(parse(with({"--dry-run"})).dry_run);
  EXPECT_EQ(parse(job).verbosity, Verbosity::normal);
  for (const char* quiet : {"-q", "--quiet"}) EXPECT_EQ(parse(with({quiet})).verbosity, Verbosity::quiet);
  for (const char* verbose : {"-v", "--verbose"})
    EXPECT_EQ(parse(with({verbose})).verbosity, Verbosity::verbose);
  EXPECT_EQ(parse(with({"-v", "-v"})).verbosity, Verbosity::verbose);
  EXPECT_EQ(refusal(with({"-q", "-v"})), "command line: quiet: contradicts --verbose; keep one of the two");
  EXPECT_TRUE(parse({"inspect", "--json", "a"}).json);
  EXPECT_EQ(parse({"inspect", "a", "--json"}).files, std::vector<std::string>{"a"});
  EXPECT_EQ(refusal(with({"--json"})), "command line: json: is not for study; it is for plan, inspect");
  EXPECT_EQ(refusal({"inspect", "-v", "a"}),
            "command line: verbose: is not for inspect; it is for study, calibrate, evaluate, archive "
            "calibrate, archive "
            "encode, archive decode");
}

TEST(CommandLine, NeedsNoJobFile) {
  const Request request =
      parse({"study", "--model.path=m", "--tokens.path=t", "--output.directory", "o", "--tokens.eos", "1,2"});

  EXPECT_EQ(request.job.tokens.eos, (std::vector<std::int64_t>{1, 2}));
}

TEST(CommandLine, BlamesTheFileOrItselfForABadValue) {
  const TempFolder folder("command_line");
  const std::string file = folder.write("j.ini", "[tokens]\nlimit = x\n");

  EXPECT_EQ(refusal({"study", file.c_str()}),
            file + ": tokens.limit = x: is not an integer; allowed: an integer of at least 1");
  EXPECT_EQ(refusal({"study", file.c_str(), "--tokens.limit", "-5"}),
            "command line: tokens.limit = -5: is too small; allowed: an integer of at least 1");
  EXPECT_NE(refusal({"study", folder.path("none.ini").c_str()}).find("none.ini: cannot be opened"),
            std::string::npos);
}

TEST(CommandLine, AcceptsKeysOfCommandsThatShareTheFile) {
  const Request request = parse({"calibrate", "--model.path=m", "--tokens.path=t", "--compress.plan=p.h5",
                                 "--evaluate.texts=t", "--output.directory=o"});

  EXPECT_EQ(request.job.compress.plan, "p.h5");
  EXPECT_EQ(refusal({"study", "--theory.trials=2"}),
            "command line: theory.trials = 2: is not for study; headspan study --help lists the keys");
  EXPECT_EQ(refusal({"theory", "--compress.plan=p.h5"}),
            "command line: compress.plan = p.h5: is not for theory; headspan theory --help lists the keys");
}

TEST(CommandLine, RefusesWhatIsNoKeyOrOneTooMany) {
  EXPECT_EQ(refusal({"study", "--tokens.limmit", "5"}),
            "command line: tokens.limmit = 5: is not a key; did you mean tokens.limit?");
  EXPECT_EQ(refusal({"study", "--limit=5"}),
            "command line: limit = 5: is not a key; limit is a key of [tokens]");
  EXPECT_EQ(refusal({"study", "--tokens.lim", "5"}),
            "command line: tokens.lim = 5: is not a key; did you mean tokens.limit?")
      << "no abbreviations";
  EXPECT_EQ(refusal({"study", "--tokens.limit", "5", "--tokens.limit", "6"}),
            "command line: tokens.limit = 6: is given twice; keep one of the two");
  EXPECT_EQ(refusal({"study", "a.ini", "b.ini"}),
            "command line: 'b.ini' is one argument too many; one job file, and --section.key for each key");
}

TEST(CommandLine, RefusesAKeyWithoutItsValue) {
  EXPECT_NE(refusal({"study", "--tokens.limit"})
                .find("command line: the required argument for option '--tokens.limit'"),
            std::string::npos);
  EXPECT_NE(refusal({"study", "--tokens.limit="}).find("'--tokens.limit'"), std::string::npos);
  EXPECT_EQ(refusal({"study", "--tokens.limit", "--tokens.seed", "6"}),
            "command line: tokens.limit: has no value; --tokens.limit VALUE");
}

TEST(CommandLine, InspectTakesPaths) {
  EXPECT_EQ(parse({"inspect", "a", "b c"}).files, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(parse({"archive", "inspect", "a"}).command, Command::inspect);
  EXPECT_EQ(parse({"archive", "inspect", "a"}).files, std::vector<std::string>{"a"});
  EXPECT_EQ(refusal({"inspect"}), "command line: names no file; headspan inspect PATH ...");
  EXPECT_EQ(refusal({"inspect", "a", "--tokens.limit", "5"}),
            "command line: tokens.limit = 5: is not for inspect; headspan inspect PATH ...");
}

}  // namespace
}  // namespace headspan
