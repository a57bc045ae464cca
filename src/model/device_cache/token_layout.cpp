#include "model/device_cache/token_layout.h"

#include <algorithm>

#include <ATen/ATen.h>

#include "model/device_cache/device_block.h"

namespace headspan {
namespace {

using Numbers = std::vector<std::int64_t>;

bool are_equal(const Numbers& numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [&](std::int64_t n) { return n == numbers.front(); });
}

at::Tensor on_device(const Numbers& numbers, at::Device device) {
  return at::tensor(numbers, at::kLong).to(device);
}

}  // namespace

TokenLayout::TokenLayout(Numbers past, Numbers counts, const ExactTokens& exact, const DocumentStarts& starts,
                         at::Device device)
    : past_(std::move(past)), counts_(std::move(counts)) {
  longest_ = *std::max_element(counts_.begin(), counts_.end());
  stored_tokens_ = split_tokens(exact, tokens(longest_)).stored;
  const std::int64_t room = DeviceBlock::room_for(stored_tokens_);
  Numbers padding, unpadding, exact_rows, exact_slots, stored_rows, stored_slots;
  std::int64_t row = 0;
  for (std::size_t s = 0; s < counts_.size(); ++s) {
    const auto sequence = static_cast<std::int64_t>(s);
    const TokenSplit before = split_tokens(exact, past_[s]),
                     after = split_tokens(exact, past_[s] + counts_[s]);
    for (std::int64_t token = before.exact; token < after.exact; ++token, ++row) {
      exact_rows.push_back(row);
      exact_slots.push_back(sequence * exact.first + token);
    }
    for (std::int64_t token = before.stored; token < after.stored; ++token, ++row) {
      stored_rows.push_back(row);
      stored_slots.push_back(sequence * room + token);
    }
    for (std::int64_t i = 0; i < longest_; ++i) {
      padding.push_back(i < counts_[s] ? row - counts_[s] + i : 0);
      if (i < counts_[s]) unpadding.push_back(sequence * longest_ + i);
    }
  }
  exact_ = {on_device(exact_rows, device), on_device(exact_slots, device)};
  stored_ = {on_device(stored_rows, device), on_device(stored_slots, device)};
  device_counts_ = on_device(counts_, device).unsqueeze(1);
  const bool uniform = are_equal(past_) && are_equal(counts_);
  const at::Tensor first = on_device(uniform ? Numbers{past_.front()} : past_, device);
  positions_ = first.unsqueeze(1) + at::arange(longest_, first.options());
  place_starts(starts, device);
  if (are_equal(counts_)) return;
  padding_ = on_device(padding, device);
  unpadding_ = on_device(unpadding, device);
}

void TokenLayout::place_starts(const DocumentStarts& starts, at::Device device) {
  std::size_t most = 0;
  for (std::size_t s = 0; s < counts_.size(); ++s) most = std::max(most, starts.positions(s).size());
  Numbers positions, rows, slots;
  for (std::size_t s = 0; s < counts_.size() && most > 0; ++s) {
    const Numbers &of_sequence = starts.positions(s), &added = starts.new_rows(s);
    positions.insert(positions.end(), of_sequence.begin(), of_sequence.end());
    positions.resize((s + 1) * most, -1);
    rows.insert(rows.end(), added.begin(), added.end());
    for (std::size_t i = of_sequence.size() - added.size(); i < of_sequence.size(); ++i)
      slots.push_back(static_cast<std::int64_t>(s * most + i));
  }
  starts_ = {on_device(rows, device), on_device(slots, device)};
  if (most > 0) start_positions_ = on_device(positions, device).view({-1, static_cast<std::int64_t>(most)});
}

at::Tensor TokenLayout::padded(const at::Tensor& x) const {
  const at::Tensor rows = padding_.defined() ? x.index_select(0, padding_) : x;
  return rows.unflatten(0, {static_cast<std::int64_t>(counts_.size()), longest_});
}

at::Tensor TokenLayout::packed(const at::Tensor& x) const {
  const at::Tensor rows = x.flatten(0, 1);
  return unpadding_.defined() ? rows.index_select(0, unpadding_) : rows;
}

std::int64_t TokenLayout::tokens(std::int64_t last) const {
  std::int64_t longest = 0;
  for (std::size_t s = 0; s < counts_.size(); ++s)
    longest = std::max(longest, past_[s] + std::min(counts_[s], last));
  return longest;
}

at::Tensor TokenLayout::last_of(const at::Tensor& x, std::int64_t kept) const {
  if (!padding_.defined()) return x.narrow(1, longest_, kept).clone();
  const at::Tensor first =
      at::arange(x.size(0), device_counts_.options()).unsqueeze(1) * x.size(1) + device_counts_;
  const at::Tensor rows = first + at::arange(kept, device_counts_.options());  // [sequences, kept]
  return x.flatten(0, 1).index_select(0, rows.flatten()).unflatten(0, {x.size(0), kept});
}

}  // namespace headspan
