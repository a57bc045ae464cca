#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "io/inputs/manifest.h"

namespace headspan {
namespace fs = std::filesystem;
namespace {

class ManifestTest : public testing::Test {
 protected:
  void SetUp() override { fs::create_directories(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  std::vector<ManifestRow> read(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return read_manifest(path_);
  }

  std::string refusal(const std::string& text) const {
    try {
      read(text);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  const std::string folder_ = testing::TempDir() + "headspan_manifest_" + std::to_string(getpid());
  const std::string path_ = folder_ + "/manifest.tsv";
  const std::string digest_ = std::string(32, '0') + std::string(32, 'a');
};

TEST_F(ManifestTest, ReadsTheRequiredColumns) {
  const auto rows = read("name\tstep\ttokens\tpath\nstep0\t0\t0\tstep0\nstep10\t10\t\t/checkpoints/step10\n");

  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0].name, "step0");
  EXPECT_EQ(rows[0].tokens, 0);
  EXPECT_EQ(rows[0].path, folder_ + "/step0");
  EXPECT_EQ(rows[1].step, 10);
  EXPECT_EQ(rows[1].tokens, std::nullopt);
  EXPECT_EQ(rows[1].path, "/checkpoints/step10");
  EXPECT_EQ(rows[1].bytes, std::nullopt);
  EXPECT_EQ(rows[1].validation_loss, std::nullopt);
  EXPECT_EQ(rows[1].seed, std::nullopt);
}

TEST_F(ManifestTest, ReadsEveryColumnInAnyOrderAndAnyLineEnd) {
  const auto rows = read(
      "sha256\tseed\tpath\tbytes\tcommit\tvalidation_loss\trevision\trepository\ttokens\tstep\tname\r\n\r\n" +
      digest_ + "\t2\t/p\t2970000000\tc0ffee\t4.166\tmain\tallenai/OLMo-2\t4001000000000\t3\tx\r\n\n");

  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].name, "x");
  EXPECT_EQ(rows[0].step, 3);
  EXPECT_EQ(rows[0].tokens, 4001000000000);
  EXPECT_EQ(rows[0].path, "/p");
  EXPECT_EQ(rows[0].repository, "allenai/OLMo-2");
  EXPECT_EQ(rows[0].revision, "main");
  EXPECT_EQ(rows[0].commit, "c0ffee");
  EXPECT_EQ(rows[0].bytes, 2970000000);
  EXPECT_EQ(rows[0].sha256, digest_);
  EXPECT_EQ(rows[0].validation_loss, 4.166);
  EXPECT_EQ(rows[0].seed, 2);
}

TEST_F(ManifestTest, LooksForAPathInItsOwnFolderFirst) {
  const std::string text = "name\tstep\ttokens\tpath\na\t0\t0\tdata\n";
  const fs::path before = fs::current_path();
  fs::create_directories(folder_ + "/here/data");
  fs::current_path(folder_ + "/here");

  const std::string only_current = read(text)[0].path;
  fs::create_directories(folder_ + "/data");
  const std::string both = read(text)[0].path;
  fs::current_path(before);
  fs::remove_all(folder_ + "/data");
  const std::string neither = read(text)[0].path;

  EXPECT_EQ(only_current, "data");
  EXPECT_EQ(both, folder_ + "/data");
  EXPECT_EQ(neither, folder_ + "/data");
}

TEST_F(ManifestTest, NamesLineColumnAndValueOfABrokenRow) {
  const std::string columns = "name\tstep\ttokens\tpath\tbytes\tsha256\tvalidation_loss\n";
  const std::pair<std::string, const char*> samples[] = {
      {"a\t0\t0\tp\n", "line 2: has 4 fields; the header has 7, separated by tabs"},
      {"a 0 0 p\n", "line 2: has 1 fields"},
      {"a\t0\t0\tp\t\t\t\t\n", "line 2: has 8 fields"},
      {"\t0\t0\tp\t\t\t\n", "line 2 name = '': cannot name a result file"},
      {".\t0\t0\tp\t\t\t\n", "line 2 name = '.': cannot name a result file"},
      {"..\t0\t0\tp\t\t\t\n", "line 2 name = '..': cannot name a result file"},
      {"a/b\t0\t0\tp\t\t\t\n", "line 2 name = 'a/b': cannot name a result file"},
      {"a\x1B\t0\t0\tp\t\t\t\n", "line 2 name = 'a\\x1B': holds a control character"},
      {"a\rb\t0\t0\tp\t\t\t\n", "line 2 name = 'a\\x0Db': holds a control character"},
      {"a\t0\t0\tp\x1B[2J\t\t\t\n", "line 2 path = 'p\\x1B[2J': holds a control character"},
      {"a\xC2\x9B"
       "2J\t0\t0\tp\t\t\t\n",
       "line 2 name = 'a\\xC2\\x9B2J': holds a control character"},
      {"caf\xE9\t0\t0\tp\t\t\t\n",
       "line 2 name = 'caf\\xE9': holds a control character or a byte that is no UTF-8"},
      {"a\t0\t0\tp\x9B\t\t\t\n", "line 2 path = 'p\\x9B': holds a control character or a byte"},
      {"a,b\t0\t0\tp\t\t\t\n", "line 2 name = 'a,b': cannot be selected"},
      {" x\t0\t0\tp\t\t\t\n", "line 2 name = ' x': cannot be selected"},
      {"x \t0\t0\tp\t\t\t\n", "line 2 name = 'x ': cannot be selected"},
      {"--x\t0\t0\tp\t\t\t\n", "line 2 name = '--x': cannot be selected"},
      {"e#f\t0\t0\tp\t\t\t\n", "line 2 name = 'e#f': cannot be selected"},
      {"all\t0\t0\tp\t\t\t\n", "line 2 name = 'all': cannot be selected"},
      {"row:1\t0\t0\tp\t\t\t\n", "line 2 name = 'row:1': cannot be selected"},
      {std::string(161, 'a') + "\t0\t0\tp\t\t\t\n", "cannot name a result file"},
      {"a\t\t0\tp\t\t\t\n", "line 2 step = '': is empty"},
      {"a\t1.5\t0\tp\t\t\t\n", "line 2 step = 1.5: is not a count"},
      {"a\t-1\t0\tp\t\t\t\n", "line 2 step = -1: is not a count"},
      {"a\t 1\t0\tp\t\t\t\n", "line 2 step =  1: is not a count"},
      {"a\t9223372036854775808\t0\tp\t\t\t\n", "step = 9223372036854775808: is not a count"},
      {"a\t0\t4001B\tp\t\t\t\n", "line 2 tokens = 4001B: is not a count"},
      {"a\t0\t0\t\t\t\t\n", "line 2 path = '': is empty"},
      {"a\t0\t0\tp\tmany\t\t\n", "line 2 bytes = many: is not a count"},
      {"a\t0\t0\tp\t\tabc\t\n", "line 2 sha256 = abc: is not a digest"},
      {"a\t0\t0\tp\t\t\tlow\n", "line 2 validation_loss = low: is not a number"},
      {"a\t0\t0\tp\t\t\tnan\n", "line 2 validation_loss = nan: is not a number"},
      {"a\t0\t0\tp\t\t\t\n\na\t1\t1\tq\t\t\t\n", "line 4 name = a: is the name of an earlier row too"},
  };
  for (const auto& [rows, wrong] : samples) {
    const std::string line = refusal(columns + rows);

    EXPECT_EQ(line.rfind(path_ + ": ", 0), 0u) << line;
    EXPECT_NE(line.find(wrong), std::string::npos) << rows << line;
  }
  const std::string of_seed = refusal("name\tstep\ttokens\tpath\tseed\na\t0\t0\tp\t-1\n");
  EXPECT_NE(of_seed.find("line 2 seed = -1: is not a count"), std::string::npos) << of_seed;
}

TEST_F(ManifestTest, RefusesARepositoryThatLeadsElsewhere) {
  const std::string columns = "name\tstep\ttokens\tpath\trepository\n", row = "a\t0\t0\tp\t";
  for (const std::string name : {"org/name", "name", "allenai/OLMo-2-1124-7B", "a/b/c.d"})
    EXPECT_EQ(read(columns + row + name + "\n").at(0).repository, name);
  const std::vector<std::string> elsewhere{
      "..",   ".",      "/",    "/tmp/x", "../x",
      "x/..", "a/../b", "a//b", "org/",   std::string(120, 'a') + "/" + std::string(120, 'b')};
  for (const std::string& name : elsewhere)
    EXPECT_NE(refusal(columns + row + name + "\n").find("line 2 repository = '" + name.substr(0, 80)),
              std::string::npos)
        << refusal(columns + row + name + "\n");
  for (const auto& [name, shown] : std::vector<std::pair<std::string, std::string>>{
           {"a\x1B", "a\\x1B"}, {"a/b\xC2\x85", "a/b\\xC2\\x85"}, {"caf\xE9/b", "caf\\xE9/b"}})
    EXPECT_NE(refusal(columns + row + name + "\n")
                  .find("line 2 repository = '" + shown + "': holds a control character"),
              std::string::npos)
        << refusal(columns + row + name + "\n");
  EXPECT_EQ(read(columns + row + "caf\xC3\xA9/b\n").at(0).repository, "caf\xC3\xA9/b");
}

TEST_F(ManifestTest, RefusesABrokenHeader) {
  EXPECT_NE(refusal("").find("holds no row"), std::string::npos);
  EXPECT_NE(refusal("name\tstep\ttokens\tpath\n").find("holds no row"), std::string::npos);
  EXPECT_NE(refusal("name\tstep\tpath\n").find("line 1 column = tokens: is missing"), std::string::npos);
  EXPECT_NE(refusal("name\tstep\ttokens\tpath\tstep\n").find("line 1 column = step: is given twice"),
            std::string::npos);
  EXPECT_NE(refusal("name\tstep\ttokens\tpath\tloss\n").find("line 1 column = 'loss': is unknown"),
            std::string::npos);
  EXPECT_NE(refusal("name step tokens path\n").find("column = 'name step tokens path': is unknown"),
            std::string::npos);
  EXPECT_THROW(read_manifest(folder_ + "/missing.tsv"), InputError);
}

/// Returns the names of the rows that `select` names in a manifest of step0, step10, 3, step30, 1-2.
std::string selected(const std::vector<std::string>& select) {
  std::vector<ManifestRow> rows;
  for (const char* name : {"step0", "step10", "3", "step30", "1-2"}) {
    rows.emplace_back();
    rows.back().name = name;
  }
  std::string names;
  for (const auto& row : select_rows(rows, select)) names += row.name + " ";
  return names;
}

TEST(SelectRows, TakesNamesIndicesAndRanges) {
  EXPECT_EQ(selected({"all"}), "step0 step10 3 step30 1-2 ");
  EXPECT_EQ(selected({"step30", "0"}), "step30 step0 ");
  EXPECT_EQ(selected({"0-2"}), "step0 step10 3 ");
  EXPECT_EQ(selected({"4-4"}), "1-2 ");
}

TEST(SelectRows, TakesANameBeforeAnIndexSpelledAlike) {
  EXPECT_EQ(selected({"3"}), "3 ");
  EXPECT_EQ(selected({"1-2"}), "1-2 ");
  EXPECT_EQ(selected({"row:3"}), "step30 ");
  EXPECT_EQ(selected({"row:2", "row:0-1"}), "3 step0 step10 ");
}

TEST(SelectRows, TakesEachRowOnce) {
  EXPECT_EQ(selected({"1", "0-2", "step10", "all"}), "step10 step0 3 step30 1-2 ");
}

TEST(SelectRows, NamesTheItemThatIsNoRow) {
  for (const char* item : {"step5", "5", "0-5", "4-0", "-1", "0-", "", "0--1", "1.0", " 1", "ALL", "row:5",
                           "row:", "row:x", "row:step0"}) {
    try {
      selected({"0", item});
      FAIL() << "'" << item << "' was accepted";
    } catch (const InputError& error) {
      const std::string field =
          item[0] == '\0' ? "model.select: " : std::string("model.select = ") + item + ": ";
      EXPECT_EQ(error.what(),
                field +
                    "is no row of the manifest; all, names such as step0, indices from 0 to 4 or ranges of "
                    "them such as 0-4 are expected");
    }
  }
  EXPECT_THROW(selected({}), InputError);
}

}  // namespace
}  // namespace headspan
