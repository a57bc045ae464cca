// Requests that are longer than the model can read. (Malformed requests: tests/app/bad_input.)
#include <gtest/gtest.h>

#include "io/inputs/requests.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

constexpr std::int64_t kVocabulary = 10, kPositions = 4;

class LongRequests : public testing::Test {
 protected:
  std::string read(const std::string& lines, std::int64_t max_positions) const {
    const std::string path = folder_.write("r.jsonl", lines);
    return input_error_of([&] {
      if (lines.find("continuation") != std::string::npos)
        EXPECT_EQ(read_scored_requests(path, kVocabulary, max_positions).size(), 2U);
      else
        EXPECT_EQ(read_generation_requests(path, kVocabulary, max_positions).size(), 2U);
    });
  }

  const TempFolder folder_{"requests"};
  const std::string short_ = R"({"id": 1, "context": [1], "continuation": [2]})"
                             "\n",
                    new_ = R"({"id": 1, "context": [1], "max_new_tokens": 2})"
                           "\n";
};

TEST_F(LongRequests, the_last_token_is_predicted_and_not_read) {
  EXPECT_EQ(read(short_ + R"({"id": 2, "context": [1, 2, 3, 4], "continuation": [5]})", kPositions),
            "nothing was refused");
  EXPECT_EQ(read(new_ + R"({"id": 2, "context": [1, 2], "max_new_tokens": 3})", kPositions),
            "nothing was refused");
}

TEST_F(LongRequests, one_token_more_is_refused_with_its_line) {
  const std::string told = folder_.path("r.jsonl") + " line 2: context, ",
                    wrong =
                        " = 6 tokens: are more than the 4 positions that the model was made for, and the one "
                        "that it predicts; shorten the context";
  EXPECT_EQ(read(short_ + R"({"id": 2, "context": [1, 2, 3, 4], "continuation": [5, 6]})", kPositions),
            told + "continuation" + wrong);
  EXPECT_EQ(read(new_ + R"({"id": 2, "context": [1, 2], "max_new_tokens": 4})", kPositions),
            told + "max_new_tokens" + wrong);
}

TEST_F(LongRequests, a_model_that_names_no_length_reads_any) {
  EXPECT_EQ(read(short_ + R"({"id": 2, "context": [1, 2, 3, 4], "continuation": [5, 6]})", 0),
            "nothing was refused");
}

}  // namespace
}  // namespace headspan
