// Sequences: the spans of a token file that a model runs, each on its own, and which of them are held out. A
// document (up to and including its end-of-text id, or as Megatron's .idx says) is split into sequences of at
// most a given length; a sequence may be a single token. No token is skipped: the sequences are contiguous
// from the first token on.
#pragma once

#include <cstdint>
#include <vector>

#include "io/inputs/tokens.h"

namespace headspan {

/// Tokens [start, start + length) of the file.
struct Sequence {
  std::int64_t start;
  std::int64_t length;
};

struct CutRule {
  std::int64_t sequence_length;   ///< maximum tokens of a sequence, at least 1
  std::int64_t limit;             ///< maximum tokens of all sequences together, at least 1
  std::vector<std::int64_t> eos;  ///< ids that end a document; ignored for Megatron, whose .idx has the ends
  std::int64_t vocab_size;        ///< ids are below it
};

/// Returns the sequences of the first `limit` tokens of the file, or of all if it holds fewer (the caller
/// compares file.count()); the last one is cut at the limit, and no token after it is read. Throws InputError
/// naming the position of an id that is not in the vocabulary. The same on every rank that calls it.
std::vector<Sequence> cut_sequences(const TokenFile& file, const CutRule& rule);

/// Returns [sequences], 1 for each one that is held out, else 0. The number held out is share * sequences,
/// rounded, halves up, but at least 1 on each side of the split; it is 0 if `share`, in [0, 1), is 0 or if
/// there is a single sequence. Sequence i draws the i-th output of SplitMix64(seed), i from 0; those with the
/// smallest outputs are held out, ties going to lower i.
std::vector<std::uint8_t> choose_heldout(std::int64_t sequences, double share, std::uint64_t seed);

}  // namespace headspan
