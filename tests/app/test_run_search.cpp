// The division of coefficients into runs against all divisions that there are.
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include "app/archive/run_search.h"
#include "base/checked.h"
#include "base/splitmix64.h"

namespace headspan {
namespace {

constexpr std::int64_t kColumns = 100, kTokens = 9;  // seven units, the last one of four columns

/// Returns coefficients whose deviations fall along the columns.
std::vector<float> numbers() {
  SplitMix64 random(11);
  std::vector<float> values(to_size(kTokens * kColumns));
  for (std::size_t k = 0; k < values.size(); ++k)
    values[k] = (static_cast<float>(random.next() >> 40) * 0x1p-23F - 1) * 8 /
                (1 + static_cast<float>(k % to_size(kColumns)));
  return values;
}

/// Returns the squared errors of runs and of what they drop.
double error_of(const std::vector<CodedRun>& runs, std::vector<float> values) {
  double error = 0;
  for (std::int64_t t = 0; t < kTokens; ++t) {
    float* first = &values[to_size(t * kColumns)];
    const float* const end = first + kColumns;
    for (const CodedRun& run : runs) {
      error += round_run(run.bits, run.count, first);
      first += run.count;
    }
    for (; first < end; ++first) error += static_cast<double>(*first) * static_cast<double>(*first);
  }
  return error;
}

/// Returns the bits of a token: those of whole units of 16 columns.
std::int64_t bits_of(const std::vector<CodedRun>& runs) {
  std::int64_t bits = 0;
  for (const CodedRun& run : runs) bits += 32 + (run.count + 15) / 16 * 16 * run.bits;
  return bits;
}

/// Calls `use` with every division of columns from `first` on, of types that do not get finer.
void for_divisions(std::int64_t first, std::vector<CodedRun>& runs,
                   const std::function<void(const std::vector<CodedRun>&)>& use) {
  use(runs);
  if (first >= kColumns) return;
  for (const std::int64_t length : {16, 64, 256, 1024})
    for (const int bits : {8, 4, 2}) {
      if (!runs.empty() && bits > runs.back().bits) continue;
      if (length >= 1024 || (length >= 256 && kColumns - first < 64)) continue;  // those of 256 say the same
      runs.push_back({std::min(length, kColumns - first), bits});
      for_divisions(first + length, runs, use);
      runs.pop_back();
    }
}

TEST(RunSearch, FindsTheBestOfAllDivisions) {
  const std::vector<float> values = numbers();
  RunSearch search(kColumns);
  search.add(values.data(), 4);
  search.add(&values[to_size(4 * kColumns)], kTokens - 4);
  for (const std::int64_t bits : {0, 63, 64, 160, 200, 320, 500, 700, 1200}) {
    double least = 1e30;
    std::vector<CodedRun> runs;
    for_divisions(0, runs, [&](const std::vector<CodedRun>& all) {
      if (bits_of(all) <= bits) least = std::min(least, error_of(all, values));
    });
    const std::vector<CodedRun> found = search.find(bits);
    EXPECT_LE(bits_of(found), bits);
    EXPECT_GE(error_of(found, values), least * (1 - 1e-9)) << bits;
    EXPECT_LE(error_of(found, values), least * (1 + 1e-9)) << bits;
    std::int64_t columns = 0;
    for (std::size_t r = 0; r < found.size(); ++r) {
      columns += found[r].count;
      EXPECT_LE(found[r].bits, r > 0 ? found[r - 1].bits : 8);
    }
    EXPECT_LE(columns, kColumns);
    EXPECT_EQ(found.empty(), bits < 64);
  }
}

}  // namespace
}  // namespace headspan
