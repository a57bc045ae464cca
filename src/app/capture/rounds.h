// Rounds: which sequences are run together, and by which rows. Sequences are sorted by length and cut into
// batches, which go to the data-parallel rows of a group in turn. The plan depends only on its arguments, so
// that every rank knows what all others do in each round.
#pragma once

#include <cstdint>
#include <vector>

#include "io/inputs/sequences.h"

namespace headspan {

/// One round: the batch of each data-parallel row, as indices of the planned sequences. A row without work
/// has an empty batch.
using Round = std::vector<std::vector<std::int64_t>>;

/// Plans batches of at most `batch_tokens` tokens; a longer sequence is a batch of its own.
std::vector<Round> plan_rounds(const std::vector<Sequence>& sequences, std::int64_t rows,
                               std::int64_t batch_tokens);

/// Plans the sequences that are not `done`: [sequences]. If the done ones are the first rounds of the plan
/// for all sequences, these are its remaining rounds.
std::vector<Round> plan_remaining(const std::vector<Sequence>& sequences, std::int64_t rows,
                                  std::int64_t batch_tokens, const std::vector<std::uint8_t>& done);

}  // namespace headspan
