#include "app/rounds.h"

#include <algorithm>
#include <numeric>

namespace headspan {

std::vector<Round> plan_rounds(const std::vector<Sequence>& sequences, std::int64_t rows,
                               std::int64_t batch_tokens) {
  std::vector<std::int64_t> order(sequences.size());
  std::iota(order.begin(), order.end(), 0);
  const auto length = [&](std::int64_t s) { return sequences[static_cast<std::size_t>(s)].length; };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
  std::vector<Round> rounds;
  std::int64_t row = rows, tokens = 0;  // the batch being filled is rounds.back()[row]; none is yet
  for (const std::int64_t s : order) {
    const bool full = row == rows || tokens + length(s) > batch_tokens;
    if (full) {
      row = row >= rows - 1 ? 0 : row + 1;
      if (row == 0) rounds.emplace_back(static_cast<std::size_t>(rows));
      tokens = 0;
    }
    rounds.back()[static_cast<std::size_t>(row)].push_back(s);
    tokens += length(s);
  }
  return rounds;
}

}  // namespace headspan
