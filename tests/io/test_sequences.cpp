// Which sequences are held out is checked against the published SplitMix64 outputs for seed 1234567:
// 6457827717110365317 3203168211198807973 9817491932198370423 4593380528125082431 16408922859458223821.
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "io/inputs/sequences.h"
#include "io/token_samples.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

Pairs cut(const TokenFile& file, const CutRule& rule) {
  Pairs pairs;
  for (const Sequence& sequence : cut_sequences(file, rule))
    pairs.emplace_back(sequence.start, sequence.length);
  return pairs;
}

TokenFile raw_file(const TempFolder& folder, const std::vector<std::int64_t>& ids) {
  return TokenFile::open(folder.write("a.bin", raw_ids<std::uint16_t>(ids)), TokenFormat::raw,
                         RawIdType::uint16);
}

TEST(CutSequences, EndsADocumentWithAnyEosAndSplitsLongOnes) {
  const TempFolder folder("sequences");
  const TokenFile file = raw_file(folder, {1, 1, 0, 1, 1, 1, 1, 1, 9, 0, 1, 1});

  EXPECT_EQ(cut(file, {4, 100, {0, 9}, 10}), (Pairs{{0, 3}, {3, 4}, {7, 2}, {9, 1}, {10, 2}}));
  EXPECT_EQ(cut(file, {4, 100, {0}, 10}), (Pairs{{0, 3}, {3, 4}, {7, 3}, {10, 2}}));
  EXPECT_EQ(cut(file, {5, 100, {}, 10}), (Pairs{{0, 5}, {5, 5}, {10, 2}}));
  EXPECT_EQ(cut(file, {2048, 100, {}, 10}), (Pairs{{0, 12}}));
}

TEST(CutSequences, KeepsPiecesOfOneToken) {
  const TempFolder folder("sequences");
  const TokenFile file = raw_file(folder, {1, 1, 1, 1, 0, 0, 1});

  EXPECT_EQ(cut(file, {4, 100, {0}, 2}), (Pairs{{0, 4}, {4, 1}, {5, 1}, {6, 1}}));
  EXPECT_EQ(cut(file, {1, 3, {0}, 2}), (Pairs{{0, 1}, {1, 1}, {2, 1}}));
}

TEST(CutSequences, ReachesTheLimitExactly) {
  const TempFolder folder("sequences");
  const TokenFile file = raw_file(folder, {1, 1, 0, 1, 1, 1, 0, 1});

  EXPECT_EQ(cut(file, {100, 5, {0}, 2}), (Pairs{{0, 3}, {3, 2}}));
  EXPECT_EQ(cut(file, {100, 3, {0}, 2}), (Pairs{{0, 3}}));
  EXPECT_EQ(cut(file, {100, 1, {0}, 2}), (Pairs{{0, 1}}));
}

TEST(CutSequences, CutsAllEqualTokens) {
  const TempFolder folder("sequences");
  const TokenFile file = raw_file(folder, {0, 0, 0});

  EXPECT_EQ(cut(file, {2, 100, {0}, 1}), (Pairs{{0, 1}, {1, 1}, {2, 1}}));
  EXPECT_EQ(cut(file, {2, 100, {}, 1}), (Pairs{{0, 2}, {2, 1}}));
}

TEST(CutSequences, GoesOnAcrossItsChunks) {
  const TempFolder folder("sequences");
  const std::int64_t chunk = 1 << 18;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(2 * chunk + 5), 1);
  ids[static_cast<std::size_t>(chunk)] = 0;
  const TokenFile file = raw_file(folder, ids);

  EXPECT_EQ(cut(file, {10 * chunk, 10 * chunk, {0}, 2}), (Pairs{{0, chunk + 1}, {chunk + 1, chunk + 4}}));
}

TEST(CutSequences, TakesMegatronsDocumentsAndNotItsEos) {
  const TempFolder folder("sequences");
  folder.write("m.idx", megatron_index({8, {2, 1, 2, 2}, {0, 4, 6, 10}, {0, 2, 3, 4}}));
  const TokenFile file =
      TokenFile::open(folder.write("m.bin", raw_ids<std::uint16_t>({1, 0, 1, 1, 0, 1, 1})));

  EXPECT_EQ(cut(file, {3, 100, {0}, 2}), (Pairs{{0, 3}, {3, 2}, {5, 2}}));
  EXPECT_EQ(cut(file, {2, 6, {0}, 2}), (Pairs{{0, 2}, {2, 1}, {3, 2}, {5, 1}}));
}

TEST(CutSequences, NamesTheFirstIdOutsideTheVocabulary) {
  const TempFolder folder("sequences");
  const TokenFile file = raw_file(folder, {1, 2, 50, 60});

  const std::string said = input_error_of([&] { cut(file, {100, 100, {0}, 50}); });

  EXPECT_NE(
      said.find("a.bin: token at position 2 = 50: is not an id of a vocabulary of 50; read as uint16: is "
                "tokens.dtype right"),
      std::string::npos)
      << said;
  EXPECT_EQ(cut(file, {100, 2, {0}, 50}), (Pairs{{0, 2}})) << "ids beyond the limit are not run";
}

TEST(CutSequences, CountsThePositionOfABadIdFromTheStartOfTheFile) {
  const TempFolder folder("sequences");
  std::vector<std::int64_t> ids((1 << 18) + 9, 1);
  ids[(1 << 18) + 4] = 7;
  const TokenFile file = raw_file(folder, ids);

  const std::string said = input_error_of([&] { cut(file, {100, 1 << 20, {0}, 2}); });

  EXPECT_NE(said.find("token at position 262148 = 7: "), std::string::npos) << said;
}

TEST(CutSequences, RefusesANegativeId) {
  const TempFolder folder("sequences");
  folder.write("m.idx", megatron_index({4, {2}, {0}, {0, 1}}));
  const TokenFile file = TokenFile::open(folder.write("m.bin", raw_ids<std::int32_t>({1, -7})));

  const std::string said = input_error_of([&] { cut(file, {100, 100, {}, 50}); });

  EXPECT_NE(said.find("token at position 1 = -7: "), std::string::npos) << said;
}

std::int64_t heldout_count(std::int64_t sequences, double share) {
  const auto flags = choose_heldout(sequences, share, 0);
  return std::accumulate(flags.begin(), flags.end(), std::int64_t{0});
}

TEST(Heldout, CountRoundsHalvesUpAndLeavesOneOnEachSide) {
  EXPECT_EQ(heldout_count(10, 0.25), 3);
  EXPECT_EQ(heldout_count(9, 0.25), 2);
  EXPECT_EQ(heldout_count(100, 0.25), 25);
  EXPECT_EQ(heldout_count(1001, 0.25), 250);
  EXPECT_EQ(heldout_count(5, 0.1), 1);
  EXPECT_EQ(heldout_count(3, 0.01), 1);
  EXPECT_EQ(heldout_count(3, 0.99), 2);
  EXPECT_EQ(heldout_count(2, 0.25), 1);
  EXPECT_EQ(heldout_count(100, 0.0), 0);
  EXPECT_EQ(heldout_count(1, 0.25), 0);
}

TEST(Heldout, TakesTheSmallestOutputsOfSplitMix64) {
  using Flags = std::vector<std::uint8_t>;

  EXPECT_EQ(choose_heldout(5, 0.2, 1234567), (Flags{0, 1, 0, 0, 0}));
  EXPECT_EQ(choose_heldout(5, 0.4, 1234567), (Flags{0, 1, 0, 1, 0}));
  EXPECT_EQ(choose_heldout(5, 0.6, 1234567), (Flags{1, 1, 0, 1, 0}));
  EXPECT_EQ(choose_heldout(4, 0.25, 1234567), (Flags{0, 1, 0, 0}));
  EXPECT_EQ(choose_heldout(3, 0.0, 1234567), (Flags{0, 0, 0}));
  EXPECT_EQ(choose_heldout(1, 0.25, 1234567), Flags{0});
}

TEST(Heldout, AnotherSeedHoldsOutOthers) {
  EXPECT_NE(choose_heldout(1001, 0.25, 0), choose_heldout(1001, 0.25, 1));
}

}  // namespace
}  // namespace headspan
