#include <cmath>
#include <sstream>

#include <gtest/gtest.h>

#include "app/inspect/result_table.h"
#include "app/inspect/text_table.h"

namespace headspan {
namespace {

ResultSummary result(const std::string& checkpoint, std::int64_t step, double mean_best) {
  StreamSummary k;
  k.name = "k";
  k.heads = 12;
  k.head_size = 8;
  k.hidden_size = 64;
  k.n_fit = 1001;
  k.n_heldout = 100;
  k.noise_floor = 0.008;
  k.geometric_null = 0.125;
  k.found.mean_best = mean_best;
  k.found.mean_best_heldout = -1.5;
  k.null.mean_best = 0.25;
  k.effective_rank = 7.25;
  ResultSummary summary;
  summary.model_name = "small";
  summary.mode = "corrected";
  summary.checkpoint = checkpoint;
  summary.step = step;
  summary.streams = {k};
  return summary;
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) all.push_back(line);
  return all;
}

/// Returns the words of the last `count` lines, with a blank between them.
std::vector<std::string> last_rows(const std::string& text, std::size_t count) {
  std::vector<std::string> rows;
  const auto all = lines(text);
  for (std::size_t i = all.size() - count; i < all.size(); ++i) {
    std::istringstream in(all[i]);
    rows.emplace_back();
    for (std::string word; in >> word;) rows.back() += (rows.back().empty() ? "" : " ") + word;
  }
  return rows;
}

TEST(ResultTable, SortsByStepAndEndsWithTheNull) {
  ResultSummary random = result("step20-random", 20, 0.1);
  random.random = true;
  random.training_tokens = 20000;
  ResultSummary later = result("step100", 100, 0.75);
  later.training_tokens = 100000;

  const std::string text = format_results({random, later, result("step20", 20, 0.5)});

  EXPECT_EQ(last_rows(text, 5),
            (std::vector<std::string>{
                "step tokens mean med. >0.1 >0.5 held rank", "20 0.500 0.000 0.000 0.000 -1.500 7.25",
                "20 random 0.100 0.000 0.000 0.000 -1.500 7.25",
                "100 100K 0.750 0.000 0.000 0.000 -1.500 7.25", "null 0.250 0.000 0.000 0.000 0.000"}));
}

TEST(ResultTable, LeavesOutWhatIsAbsent) {
  std::vector<ResultSummary> results{result("one", -1, 0.5), result("two", -1, 0.75)};
  for (ResultSummary& each : results) each.streams[0].n_heldout = 0;

  const std::string text = format_results(results);

  EXPECT_EQ(last_rows(text, 4), (std::vector<std::string>{
                                    "checkpoint mean med. >0.1 >0.5 rank", "one 0.500 0.000 0.000 0.000 7.25",
                                    "two 0.750 0.000 0.000 0.000 7.25", "null 0.250 0.000 0.000 0.000"}));
}

TEST(ResultTable, CallsCheckpointsByNameWhereStepsDoNotTellThemApart) {
  const std::string text = format_results({result("stage2", 20, 0.5), result("stage1", 20, 0.75)});

  EXPECT_EQ(last_rows(text, 3)[0].substr(0, 12), "stage1 0.750");
  EXPECT_EQ(last_rows(text, 3)[1].substr(0, 12), "stage2 0.500");
}

TEST(ResultTable, SeparatesWhatDoesNotCompare) {
  ResultSummary other = result("step20", 20, 0.75);
  other.streams[0].n_fit = 2001;

  const std::string text = format_results({result("step20", 20, 0.5), other});

  EXPECT_NE(text.find("n_fit 1001,"), std::string::npos);
  EXPECT_NE(text.find("n_fit 2001,"), std::string::npos);
  EXPECT_NE(text.find(" 0.500 0.250\n"), std::string::npos) << text;
  EXPECT_NE(text.find(" 0.750 0.250\n"), std::string::npos) << text;
}

TEST(ResultTable, TellsFlaggedPairsBelow) {
  ResultSummary flagged = result("step20", 20, 0.5);
  flagged.streams[0].flagged = 3;

  const std::string text = format_results({flagged, result("step30", 30, 0.5)});

  EXPECT_NE(lines(text).back().find("variable status): step20 K 3"), std::string::npos) << text;
}

TEST(ResultTable, FitsTheWidthOfATerminal) {
  ResultSummary widest = result("a model", 1907349, 0.5);
  widest.training_tokens = 1999000000000;
  widest.streams.assign(3, widest.streams[0]);
  for (std::size_t s = 0; s < 3; ++s) widest.streams[s].name = std::string(1, "kqv"[s]);

  ResultSummary random = widest;
  random.random = true;

  for (const std::string& line : lines(format_results({widest, random})))
    EXPECT_LE(line.size(), 132u) << line;
}

TEST(TextTable, AlignsUnderGroups) {
  const std::string text = format_table({{"", "", {"a", "bbb"}},
                                         {"", "none", {"", ""}},
                                         {"K", "x", {"1.00", "2"}},
                                         {"K", "long", {"3", ""}},
                                         {"V", "y", {"4", "5"}}});

  EXPECT_EQ(text,
            "     K -------  V\n"
            "        x long  y\n"
            "a    1.00    3  4\n"
            "bbb     2       5\n");
}

TEST(TextTable, WritesNumbersShort) {
  EXPECT_EQ(format_share(0.12349), "0.123");
  EXPECT_EQ(format_share(std::nan("")), "nan");
  EXPECT_EQ(format_figure(9.994) + " " + format_figure(9.996) + " " + format_figure(99.96), "9.99 10.0 100");
  EXPECT_EQ(format_count(0) + " " + format_count(999) + " " + format_count(1000), "0 999 1.00K");
  EXPECT_EQ(format_count(999499) + " " + format_count(999500) + " " + format_count(2000000000000),
            "999K 1.00M 2.00T");
}

}  // namespace
}  // namespace headspan
