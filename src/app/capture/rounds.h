// Rounds: which sequences are run together and by whom. Sequences are sorted by length, cut into batches of
// at most a given number of tokens, and the batches dealt out to the data-parallel rows of a group in turn.
// The plan depends only on its arguments, so that every rank knows what all others do in each round.
#pragma once

#include <cstdint>
#include <vector>

#include "io/inputs/sequences.h"

namespace headspan {

/// One round: for each data-parallel row the sequences of its batch, as positions in the list that was
/// planned. A row without work has none.
using Round = std::vector<std::vector<std::int64_t>>;

/// `batch_tokens` bounds the tokens of a batch; a longer sequence is a batch of its own.
std::vector<Round> plan_rounds(const std::vector<Sequence>& sequences, std::int64_t rows,
                               std::int64_t batch_tokens);

/// The same for the sequences that are not `done`: [sequences]. Where these are the first rounds of the whole
/// plan, it goes on with the next.
std::vector<Round> plan_remaining(const std::vector<Sequence>& sequences, std::int64_t rows,
                                  std::int64_t batch_tokens, const std::vector<std::uint8_t>& done);

}  // namespace headspan
