// Sequences: the pieces of a token file that a model sees, each on its own, and which of them are held out. A
// document (up to and including its end-of-text id, or as Megatron's .idx says) is split into pieces of at
// most a given length; pieces of one token count as any other. Nothing is skipped: the pieces follow each
// other from the first token on.
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
  std::int64_t sequence_length;  ///< most tokens of a sequence, at least 1
  std::int64_t limit;            ///< tokens of all sequences together, at least 1
  std::vector<std::int64_t>
      eos;                  ///< each ends a document; none: one document. Not for Megatron, whose .idx tells.
  std::int64_t vocab_size;  ///< ids are below it
};

/// The sequences of the first `limit` tokens, the last one cut to reach it exactly; of the whole file when
/// that holds fewer, which the caller may tell from file.count(). Reads no token beyond. Throws InputError at
/// an id that is not of the vocabulary, with its position. The same on every rank that calls it.
std::vector<Sequence> cut_sequences(const TokenFile& file, const CutRule& rule);

/// How many of `sequences` are held out: round(share * sequences), halves up, at least 1 on each side. 0
/// where share is 0 and where a single sequence leaves nothing to hold out (the caller's to tell the user).
/// `share` is in [0, 1).
std::int64_t heldout_count(std::int64_t sequences, double share);

/// 1 for each of `sequences` that is held out, else 0: the heldout_count(...) with the smallest i-th output
/// of SplitMix64(seed), i from 0, ties to the lower i.
std::vector<std::uint8_t> choose_heldout(std::int64_t sequences, double share, std::uint64_t seed);

}  // namespace headspan
