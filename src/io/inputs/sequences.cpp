#include "io/inputs/sequences.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "base/splitmix64.h"

namespace headspan {
namespace {

constexpr std::int64_t kChunk = 1 << 18;  // ids read at once

void check_vocabulary(const TokenFile& file, const std::vector<std::int64_t>& ids, std::int64_t start,
                      std::int64_t vocab_size) {
  const auto bad =
      std::find_if(ids.begin(), ids.end(), [&](std::int64_t id) { return id < 0 || id >= vocab_size; });
  if (bad == ids.end()) return;
  throw InputError(
      file.path(), "token at position " + std::to_string(start + (bad - ids.begin())), std::to_string(*bad),
      "is not an id of a vocabulary of " + std::to_string(vocab_size),
      "read as " + file.type().name + ": is tokens.dtype right, and the file of this model's tokenizer?");
}

std::int64_t heldout_count(std::int64_t sequences, double share) {
  HS_ASSERT(share >= 0 && share < 1);
  if (share == 0 || sequences < 2) return 0;
  const auto rounded = static_cast<std::int64_t>(std::floor(share * static_cast<double>(sequences) + 0.5));
  return std::clamp(rounded, std::int64_t{1}, sequences - 1);
}

}  // namespace

std::vector<Sequence> cut_sequences(const TokenFile& file, const CutRule& rule) {
  HS_ASSERT(rule.sequence_length > 0 && rule.limit > 0);
  const std::int64_t total = std::min(rule.limit, file.count());
  const bool has_documents = file.format() == TokenFormat::megatron;
  const std::vector<std::int64_t> ends = file.document_ends(total);
  auto next_end = ends.begin();

  std::vector<Sequence> sequences;
  std::int64_t start = 0;
  for (std::int64_t done = 0; done < total; done += kChunk) {
    const auto ids = file.read(done, std::min(kChunk, total - done));
    check_vocabulary(file, ids, done, rule.vocab_size);
    std::int64_t position = done;
    for (const std::int64_t id : ids) {
      ++position;
      const bool at_end = has_documents ? next_end != ends.end() && *next_end == position
                                        : std::find(rule.eos.begin(), rule.eos.end(), id) != rule.eos.end();
      if (at_end && has_documents) ++next_end;
      if (!at_end && position - start < rule.sequence_length && position < total) continue;
      sequences.push_back({start, position - start});
      start = position;
    }
  }
  return sequences;
}

std::vector<std::uint8_t> choose_heldout(std::int64_t sequences, double share, std::uint64_t seed) {
  std::vector<std::uint8_t> heldout(to_size(sequences), 0);
  std::vector<std::pair<std::uint64_t, std::size_t>> order;
  SplitMix64 random(seed);
  for (std::size_t i = 0; i < heldout.size(); ++i) order.emplace_back(random.next(), i);
  const auto chosen = order.begin() + heldout_count(sequences, share);
  std::nth_element(order.begin(), chosen, order.end());
  for (auto it = order.begin(); it != chosen; ++it) heldout[it->second] = 1;
  return heldout;
}

}  // namespace headspan
