// Rounds worked out by hand, and properties that they have for sequences of any lengths.
#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "app/capture/rounds.h"

namespace headspan {
namespace {

std::vector<Sequence> sequences_of(const std::vector<std::int64_t>& lengths) {
  std::vector<Sequence> sequences;
  for (const std::int64_t length : lengths) sequences.push_back({0, length});
  return sequences;
}

std::vector<Sequence> random_sequences(std::int64_t count, std::uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::uniform_int_distribution<std::int64_t> length(1, 40);
  std::vector<Sequence> sequences;
  for (std::int64_t s = 0; s < count; ++s) sequences.push_back({0, length(engine)});
  return sequences;
}

TEST(Rounds, AreBatchesOfSequencesFromTheLongestOnDealtToTheRowsInTurn) {
  const std::vector<Round> expected{{{2}, {0, 4}}, {{1, 3}, {}}};

  EXPECT_EQ(plan_rounds(sequences_of({5, 3, 9, 2, 4}), 2, 9), expected);
}

TEST(Rounds, OfASequenceLongerThanABatchHoldItAlone) {
  const std::vector<Round> expected{{{1}}, {{0, 2}}};

  EXPECT_EQ(plan_rounds(sequences_of({3, 50, 2}), 1, 10), expected);
}

TEST(Rounds, KeepTheOrderOfSequencesOfOneLength) {
  const std::vector<Round> expected{{{1, 3}}, {{0, 2, 4}}};

  EXPECT_EQ(plan_rounds(sequences_of({3, 5, 3, 5, 3}), 1, 10), expected);

  std::vector<std::int64_t> all(40);  // enough that a sort that is not stable moves some
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(plan_rounds(sequences_of(std::vector<std::int64_t>(40, 3)), 1, 120), (std::vector<Round>{{all}}));
}

TEST(Rounds, OfNothingAreNone) { EXPECT_TRUE(plan_rounds({}, 3, 10).empty()); }

TEST(Rounds, HoldEverySequenceOnceInBatchesThatFit) {
  for (const std::int64_t rows : {1, 2, 3, 5})
    for (const std::int64_t batch_tokens : {1, 40, 100}) {
      const std::vector<Sequence> sequences = random_sequences(57, static_cast<std::uint64_t>(rows));

      const std::vector<Round> rounds = plan_rounds(sequences, rows, batch_tokens);

      std::vector<std::int64_t> seen;
      std::int64_t before = 1000;  // lengths fall
      for (const Round& round : rounds) {
        ASSERT_EQ(round.size(), static_cast<std::size_t>(rows));
        bool work_before = true;  // only the last rows of the last round have no work
        for (const auto& batch : round) {
          EXPECT_TRUE(work_before || batch.empty());
          work_before = !batch.empty();
          EXPECT_TRUE(work_before || &round == &rounds.back());
          std::int64_t tokens = 0;
          for (const std::int64_t s : batch) {
            const std::int64_t length = sequences[static_cast<std::size_t>(s)].length;
            EXPECT_LE(length, before);
            before = length;
            tokens += length;
            seen.push_back(s);
          }
          EXPECT_TRUE(tokens <= batch_tokens || batch.size() == 1);
        }
      }
      std::sort(seen.begin(), seen.end());
      ASSERT_EQ(seen.size(), sequences.size());
      for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<std::int64_t>(i));
    }
}

TEST(Rounds, ThatRemainAfterTheFirstAreTheNext) {
  const std::vector<Sequence> sequences = random_sequences(31, 9);
  const std::vector<Round> all = plan_rounds(sequences, 2, 50);
  for (std::size_t through = 0; through <= all.size(); ++through) {
    std::vector<std::uint8_t> done(sequences.size(), 0);
    for (std::size_t r = 0; r < through; ++r)
      for (const auto& batch : all[r])
        for (const std::int64_t s : batch) done[static_cast<std::size_t>(s)] = 1;

    const std::vector<Round> rest = plan_remaining(sequences, 2, 50, done);

    EXPECT_EQ(rest, std::vector<Round>(all.begin() + static_cast<std::ptrdiff_t>(through), all.end()));
  }
}

TEST(Rounds, ThatRemainOfOtherRowsHoldWhatIsNotDone) {
  const std::vector<Sequence> sequences = sequences_of({5, 3, 9, 2, 4});

  const std::vector<Round> rest = plan_remaining(sequences, 3, 9, {0, 1, 0, 0, 1});

  EXPECT_EQ(rest, (std::vector<Round>{{{2}, {0, 3}, {}}}));
}

}  // namespace
}  // namespace headspan
