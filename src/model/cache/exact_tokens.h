// Which tokens of a sequence a cache keeps as they are: the first ones, instead of storing them, and the most
// recent ones, which are stored as well. (So are those with which a document begins in the middle of a
// sequence: model/cache/document_starts.h.) Where stored tokens are quantised in groups, the tokens of a
// group that is not complete, or of which some are recent, are recent too. Caches in host memory and on
// devices share this rule.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headspan {

struct ExactTokens {
  std::int64_t first = 0;   ///< tokens at the beginning of a sequence that are never stored
  std::int64_t recent = 0;  ///< last tokens, the query's own among them, that a query reads as they are
  std::int64_t group = 1;   ///< stored tokens that are quantised together; more than 1 only on the host

  bool keeps_recent() const { return recent > 0 || group > 1; }

  /// Returns how many recent tokens are kept from one step to the next: the query's own token is new.
  std::int64_t kept_recent() const {
    return group == 1 ? std::max<std::int64_t>(0, recent - 1) : std::max(recent + group - 2, group - 1);
  }
};

/// How a query reads the tokens of a sequence up to its own, all counts in tokens.
struct TokenSplit {
  std::int64_t exact;         ///< first tokens, kept as they are
  std::int64_t stored;        ///< tokens after these, which are stored
  std::int64_t far;           ///< first of the stored tokens, read as they are stored: whole groups
  std::int64_t recent_begin;  ///< index of the first recent token, read as it is (it may be exact)
};

/// Returns the split for a query that is the last of `tokens` tokens.
inline TokenSplit split_tokens(const ExactTokens& kept, std::int64_t tokens) {
  TokenSplit split;
  split.exact = std::min(kept.first, tokens);
  split.stored = tokens - split.exact;
  const std::int64_t behind = std::max<std::int64_t>(0, tokens - kept.recent);  // of recent tokens
  split.far = std::max<std::int64_t>(0, behind - split.exact) / kept.group * kept.group;
  split.recent_begin = std::min(behind, split.exact + split.far);
  return split;
}

}  // namespace headspan
