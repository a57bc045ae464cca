#include "bench/made_up_sample.h"

#include <algorithm>

namespace headspan {

Sample made_up_sample(const BenchOptions& options, std::int64_t tokens, std::int64_t vocab_size) {
  Sample sample;
  for (std::int64_t start = 0; start < tokens; start += options.sequence_length) {
    const std::int64_t length = std::min(options.sequence_length, tokens - start);
    sample.heldout.push_back(sample.sequences.size() % 4 == 3);
    sample.sequences.push_back({start, length});
    std::vector<std::int64_t>& ids = sample.tokens.emplace_back();
    for (std::int64_t t = start; t < start + length; ++t) ids.push_back(t * 7919 % vocab_size);
  }
  return sample;
}

}  // namespace headspan
