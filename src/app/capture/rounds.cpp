#include "app/capture/rounds.h"

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
  std::int64_t row = rows, tokens = 0;  // rounds.back()[row] is being filled; none while row == rows
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

std::vector<Round> plan_remaining(const std::vector<Sequence>& sequences, std::int64_t rows,
                                  std::int64_t batch_tokens, const std::vector<std::uint8_t>& done) {
  const auto is_done = [&](std::int64_t s) { return done[static_cast<std::size_t>(s)] != 0; };
  std::vector<Round> rounds = plan_rounds(sequences, rows, batch_tokens);
  // The done sequences that are not in the rounds before `next`; below 0 if these hold others too.
  std::int64_t left = std::count(done.begin(), done.end(), 1);
  auto next = rounds.begin();
  for (; next != rounds.end() && left > 0; ++next)
    for (const auto& batch : *next)
      if (std::all_of(batch.begin(), batch.end(), is_done))
        left -= static_cast<std::int64_t>(batch.size());
      else
        left = -1;
  if (left == 0) return {next, rounds.end()};

  std::vector<Sequence> rest;
  std::vector<std::int64_t> position;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    if (done[s] != 0) continue;
    rest.push_back(sequences[s]);
    position.push_back(static_cast<std::int64_t>(s));
  }
  rounds = plan_rounds(rest, rows, batch_tokens);
  for (Round& round : rounds)
    for (auto& batch : round)
      for (std::int64_t& s : batch) s = position[static_cast<std::size_t>(s)];
  return rounds;
}

}  // namespace headspan
