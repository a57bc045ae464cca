#include "model/cache/document_starts.h"

#include <algorithm>

#include "base/checked.h"

namespace headspan {

DocumentStarts::DocumentStarts(std::int64_t sequences, std::int64_t first, std::vector<std::int64_t> ends)
    : first_(first), ends_(std::move(ends)), sequences_(to_size(sequences)) {}

void DocumentStarts::follow(const std::vector<std::int64_t>& tokens,
                            const std::vector<std::int64_t>& counts) {
  std::int64_t row = 0;
  for (std::size_t s = 0; s < counts.size(); ++s) {
    Followed& sequence = sequences_[s];
    sequence.new_rows.clear();
    for (const std::int64_t end = row + counts[s]; row < end; ++row, ++sequence.length) {
      if (sequence.length >= first_ && sequence.length < sequence.begin + first_ && sequence.begin > 0) {
        sequence.positions.push_back(sequence.length);
        sequence.new_rows.push_back(row);
      }
      if (std::find(ends_.begin(), ends_.end(), tokens[to_size(row)]) != ends_.end())
        sequence.begin = sequence.length + 1;
    }
  }
}

}  // namespace headspan
