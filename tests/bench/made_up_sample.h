// Tokens of no text, for benchmarks that run a model.
#pragma once

#include "app/run/sample.h"
#include "bench/bench.h"

namespace headspan {

/// `tokens` tokens in sequences of options.sequence_length, the last one cut, of which every fourth is held
/// out.
Sample made_up_sample(const BenchOptions& options, std::int64_t tokens, std::int64_t vocab_size);

}  // namespace headspan
