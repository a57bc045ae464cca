// How the new tokens of a batch lie, for a cache on a device: packed, end to end, as the model has them; or
// padded, [sequences, tokens of the longest, ..], as attention takes them, where what fills the rows behind a
// shorter sequence means nothing. And where they go: a token before exact_first to slot
// s * exact_first + position, one behind it to slot s * room + position - exact_first of its sequence s. All
// indices are made once and lie on the device.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace headspan {

class TokenLayout {
 public:
  /// Rows of packed tokens and the slots that they go to: [tokens] each, int64.
  struct Places {
    at::Tensor rows, slots;
  };

  /// `past`: tokens of each sequence so far; `counts`: new ones, of some sequence at least one.
  TokenLayout(std::vector<std::int64_t> past, std::vector<std::int64_t> counts, std::int64_t exact_first,
              at::Device device);

  const std::vector<std::int64_t>& counts() const { return counts_; }
  std::int64_t longest() const { return longest_; }

  /// x: [tokens, ..], as [sequences, longest, ..].
  at::Tensor padded(const at::Tensor& x) const;
  /// x: [sequences, longest, ..], as [tokens, ..].
  at::Tensor packed(const at::Tensor& x) const;

  /// Positions of padded tokens: [sequences, longest], or [1, longest] where all sequences are alike.
  const at::Tensor& positions() const { return positions_; }
  bool alike() const { return positions_.size(0) == 1; }

  /// Of the longest sequence, up to new token `last` of each.
  std::int64_t tokens(std::int64_t last) const;

  /// x: [sequences, kept + longest, ..], what was kept before the new tokens and they: the last `kept` up to
  /// the last new one of each sequence.
  at::Tensor last_of(const at::Tensor& x, std::int64_t kept) const;

  const Places& exact() const { return exact_; }
  const Places& stored() const { return stored_; }

 private:
  std::vector<std::int64_t> past_, counts_;
  std::int64_t longest_ = 0;
  at::Tensor positions_;
  at::Tensor padding_;    // [sequences * longest]: the packed row; undefined: padded tokens are packed ones
  at::Tensor unpadding_;  // [tokens]: the padded row
  at::Tensor fresh_;      // [sequences, 1]: counts
  Places exact_, stored_;
};

}  // namespace headspan
