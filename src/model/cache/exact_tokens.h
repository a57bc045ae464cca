// Which tokens of a sequence a cache keeps as they are: the first ones, in place of stored columns, and the
// most recent ones, beside them. The one rule for caches in host memory and on devices.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headspan {

struct ExactTokens {
  std::int64_t first = 0;   ///< so many tokens at the beginning of a sequence are never stored
  std::int64_t recent = 0;  ///< a query meets so many tokens up to its own as they are

  /// How many recent tokens are kept from one step to the next: the query's own token is new.
  std::int64_t kept_recent() const { return std::max<std::int64_t>(0, recent - 1); }
};

/// The first tokens of a sequence, as a query sees them that sees no others.
struct TokenSplit {
  std::int64_t exact;         ///< tokens 0 .. exact are kept as they are
  std::int64_t stored;        ///< so many tokens after these are stored
  std::int64_t far;           ///< so many of the stored ones are met as they are stored
  std::int64_t recent_begin;  ///< tokens from this one on are met as they are, also those before `exact`
};

inline TokenSplit split_tokens(const ExactTokens& kept, std::int64_t tokens) {
  TokenSplit split;
  split.exact = std::min(kept.first, tokens);
  split.stored = tokens - split.exact;
  split.recent_begin = std::max<std::int64_t>(0, tokens - kept.recent);
  split.far = std::max<std::int64_t>(0, split.recent_begin - split.exact);
  return split;
}

}  // namespace headspan
