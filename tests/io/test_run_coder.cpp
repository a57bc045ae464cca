// Runs of coefficients, as KVTC codes them: what is read is what rounding leaves, and nothing else is read.
#include <cmath>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "base/splitmix64.h"
#include "io/archive/run_coder.h"
#include "support/input_error.h"

namespace headspan {
namespace {

constexpr std::int64_t kTokens = 13, kColumns = 40;
const std::vector<CodedRun> kRuns{{16, 8}, {16, 4}, {4, 2}};  // the last four columns are dropped

std::vector<float> numbers() {
  SplitMix64 random(5);
  std::vector<float> values(to_size(kTokens * kColumns));
  for (float& value : values) value = static_cast<float>(random.next() >> 40) * 0x1p-22F - 2;
  return values;
}

TEST(RunCoder, ReadsWhatRoundingLeaves) {
  const std::vector<float> given = numbers();
  const std::vector<std::uint8_t> bytes = encode_runs(kRuns, given.data(), kTokens, kColumns);
  std::vector<float> found(given.size());
  decode_runs(kRuns, bytes.data(), static_cast<std::int64_t>(bytes.size()), kTokens, kColumns, found.data());
  for (std::int64_t t = 0; t < kTokens; ++t) {
    std::int64_t first = t * kColumns;
    for (const CodedRun& run : kRuns) {
      float least = INFINITY, most = -INFINITY;
      for (std::int64_t j = first; j < first + run.count; ++j) {
        least = std::min(least, given[to_size(j)]);
        most = std::max(most, given[to_size(j)]);
      }
      const float step = (most - least) / static_cast<float>((1 << run.bits) - 1);
      std::vector<float> rounded(given.begin() + first, given.begin() + first + run.count);
      double squares = 0;
      for (std::int64_t j = first; j < first + run.count; ++j) {
        const float error = found[to_size(j)] - given[to_size(j)];
        EXPECT_LE(std::abs(error), 0.5F * step + 0.003F) << run.bits;  // least and step are rounded
        squares += static_cast<double>(error) * static_cast<double>(error);
      }
      EXPECT_NEAR(round_run(run.bits, run.count, rounded.data()), squares, 1e-9);
      for (std::int64_t j = 0; j < run.count; ++j) EXPECT_EQ(rounded[to_size(j)], found[to_size(first + j)]);
      first += run.count;
    }
    for (; first < (t + 1) * kColumns; ++first) EXPECT_EQ(found[to_size(first)], 0);
  }
}

TEST(RunCoder, LosesNothingOfNumbersOnItsGrid) {
  std::vector<float> given{0, 3, 1, 2, -4, 8, 0, 4}, found(8);  // two tokens: steps of 1 and of 4
  const std::vector<CodedRun> runs{{4, 2}};
  const std::vector<std::uint8_t> bytes = encode_runs(runs, given.data(), 2, 4);
  decode_runs(runs, bytes.data(), static_cast<std::int64_t>(bytes.size()), 2, 4, found.data());
  EXPECT_EQ(found, given);
  EXPECT_EQ(round_run(2, 4, given.data()), 0);
}

TEST(RunCoder, CodesTokensWithoutRunsAndEqualNumbers) {
  std::vector<float> given(8, 2.5F), found(8);
  for (const std::vector<CodedRun>& runs : {std::vector<CodedRun>{}, {{4, 8}}}) {
    const std::vector<std::uint8_t> bytes = encode_runs(runs, given.data(), 2, 4);
    decode_runs(runs, bytes.data(), static_cast<std::int64_t>(bytes.size()), 2, 4, found.data());
    EXPECT_EQ(found, std::vector<float>(8, runs.empty() ? 0 : 2.5F));
  }
}

TEST(RunCoder, RefusesOtherBytes) {
  const std::vector<float> given = numbers();
  const std::vector<std::uint8_t> bytes = encode_runs(kRuns, given.data(), kTokens, kColumns);
  std::vector<float> found(given.size());
  const auto read = [&](std::int64_t size, std::int64_t tokens) {
    return input_error_of([&] { decode_runs(kRuns, bytes.data(), size, tokens, kColumns, found.data()); });
  };
  const auto size = static_cast<std::int64_t>(bytes.size());
  EXPECT_EQ(read(size, kTokens), "nothing was refused");
  EXPECT_EQ(read(size - 1, kTokens), "block: is damaged");
  EXPECT_EQ(read(size, kTokens - 4), "block: is damaged");
  EXPECT_EQ(read(size, kTokens + 4), "block: is damaged");
  EXPECT_EQ(read(0, kTokens), "block: is damaged");
}

}  // namespace
}  // namespace headspan
