// How the new tokens of a batch are laid out for a cache on a device, and the slots in which they are stored.
// Tokens are packed, end to end, as the model has them; or padded, [sequences, tokens of the longest, ..], as
// attention takes them, with arbitrary contents after the tokens of a shorter sequence. With E exact first
// tokens per sequence, token `position` of sequence s goes to slot s * E + position if it is one of these,
// else to slot s * room + position - E. Tokens that begin a document have further slots, as many in each
// sequence as the one with the most has. All indices are computed once and kept on the device.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "model/cache/document_starts.h"
#include "model/cache/exact_tokens.h"

namespace headspan {

class TokenLayout {
 public:
  /// Rows of packed tokens and the slots in which these are stored: [tokens] each, int64.
  struct Slots {
    at::Tensor rows, slots;
  };

  /// `past`: tokens of each sequence so far; `counts`: new ones, at least one in all; `starts` has followed
  /// both.
  TokenLayout(std::vector<std::int64_t> past, std::vector<std::int64_t> counts, const ExactTokens& exact,
              const DocumentStarts& starts, at::Device device);

  const std::vector<std::int64_t>& counts() const { return counts_; }
  std::int64_t longest() const { return longest_; }  ///< new tokens

  /// Returns x: [tokens, ..] as [sequences, longest, ..].
  at::Tensor padded(const at::Tensor& x) const;
  /// Returns x: [sequences, longest, ..] as [tokens, ..].
  at::Tensor packed(const at::Tensor& x) const;

  /// Returns the positions of padded tokens: [sequences, longest], or [1, longest] if all sequences are
  /// equally long.
  const at::Tensor& positions() const { return positions_; }
  bool is_uniform() const { return positions_.size(0) == 1; }

  /// Returns how many tokens the longest sequence has, if only the first `last` new tokens of each count.
  std::int64_t tokens(std::int64_t last) const;
  /// Returns how many tokens of the longest sequence are stored.
  std::int64_t stored_tokens() const { return stored_tokens_; }

  /// x: [sequences, kept + longest, ..]: `kept` earlier tokens, then the new ones. Returns the last `kept`
  /// tokens up to the last new one of each sequence.
  at::Tensor last_of(const at::Tensor& x, std::int64_t kept) const;

  const Slots& exact() const { return exact_; }
  const Slots& stored() const { return stored_; }
  const Slots& starts() const { return starts_; }  ///< of new tokens that begin a document

  /// Returns the positions of all tokens that begin a document, by slot: [sequences, slots], -1 where a slot
  /// is unused; undefined: there are none.
  const at::Tensor& start_positions() const { return start_positions_; }

 private:
  void place_starts(const DocumentStarts& starts, at::Device device);

  std::vector<std::int64_t> past_, counts_;
  std::int64_t longest_ = 0, stored_tokens_ = 0;
  at::Tensor positions_;
  at::Tensor padding_;    // [sequences * longest]: the packed row; undefined: packed and padded are the same
  at::Tensor unpadding_;  // [tokens]: the padded row
  at::Tensor device_counts_;  // [sequences, 1]
  Slots exact_, stored_, starts_;
  at::Tensor start_positions_;
};

}  // namespace headspan
