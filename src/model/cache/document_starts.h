// Which tokens of a cache begin a document in the middle of a sequence. Attention gathers on the first tokens
// of every document, so a cache keeps as many of them exactly as it keeps first tokens of a sequence. They
// are found by the ids that end a document. Their keys and values are kept by the caches.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

class DocumentStarts {
 public:
  /// `first`: how many tokens of each document are kept exactly; `ends`: ids that end a document.
  DocumentStarts(std::int64_t sequences, std::int64_t first, std::vector<std::int64_t> ends);

  /// Follows the next tokens of each sequence, end to end.
  void follow(const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& counts);

  /// Returns the positions of these tokens in a sequence, ascending: behind its first tokens, which are exact
  /// anyway.
  const std::vector<std::int64_t>& positions(std::size_t sequence) const {
    return sequences_[sequence].positions;
  }

  /// Returns which rows of the tokens that were last followed are the last of these positions.
  const std::vector<std::int64_t>& new_rows(std::size_t sequence) const {
    return sequences_[sequence].new_rows;
  }

 private:
  struct Followed {
    std::int64_t length = 0;
    std::int64_t begin = 0;  // of the last document
    std::vector<std::int64_t> positions, new_rows;
  };

  std::int64_t first_;
  std::vector<std::int64_t> ends_;
  std::vector<Followed> sequences_;
};

}  // namespace headspan
