// Which tokens are exact, stored and recent, against the definition of each, token by token.
#include <gtest/gtest.h>

#include "model/cache/exact_tokens.h"

namespace headspan {
namespace {

TEST(ExactTokens, split_the_tokens_that_a_query_sees) {
  for (const std::int64_t first : {0, 1, 4, 9})
    for (const std::int64_t recent : {0, 1, 3, 12})
      for (std::int64_t tokens = 0; tokens <= 20; ++tokens) {
        std::int64_t exact = 0, stored = 0, far = 0, near = 0;
        for (std::int64_t token = 0; token < tokens; ++token) {
          const bool is_recent = tokens - token <= recent;
          ++(token < first ? exact : stored);
          if (is_recent) ++near;
          if (token >= first && !is_recent) ++far;
        }

        const TokenSplit split = split_tokens({first, recent}, tokens);

        const std::string where =
            std::to_string(first) + ", " + std::to_string(recent) + ", " + std::to_string(tokens) + " tokens";
        EXPECT_EQ(split.exact, exact) << where;
        EXPECT_EQ(split.stored, stored) << where;
        EXPECT_EQ(split.far, far) << where;
        EXPECT_EQ(split.recent_begin, tokens - near) << where;
      }
}

/// Token j behind the first is read as it is from floor((tokens - first - recent) / group) group on.
TEST(ExactTokens, of_groups_are_recent_until_all_of_them_are_far) {
  for (const std::int64_t first : {0, 3})
    for (const std::int64_t recent : {0, 1, 7})
      for (std::int64_t tokens = 0; tokens <= 30; ++tokens) {
        std::int64_t far = 0;
        while (first + far + 4 <= tokens - recent) far += 4;  // the next group is far as a whole

        const TokenSplit split = split_tokens({first, recent, 4}, tokens);

        const std::string where =
            std::to_string(first) + ", " + std::to_string(recent) + ", " + std::to_string(tokens) + " tokens";
        EXPECT_EQ(split.stored, tokens - std::min(first, tokens)) << where;
        EXPECT_EQ(split.far, far) << where;
        EXPECT_EQ(std::max(split.recent_begin, split.exact), split.exact + far) << where;
        const TokenSplit next = split_tokens({first, recent, 4}, tokens + 1);
        EXPECT_LE(tokens - std::max(next.recent_begin, next.exact),
                  (ExactTokens{first, recent, 4}).kept_recent())
            << where;
      }
}

TEST(ExactTokens, keep_all_recent_ones_but_the_next) {
  EXPECT_EQ((ExactTokens{4, 0}).kept_recent(), 0);
  EXPECT_EQ((ExactTokens{4, 1}).kept_recent(), 0);
  EXPECT_EQ((ExactTokens{4, 5}).kept_recent(), 4);
}

}  // namespace
}  // namespace headspan
