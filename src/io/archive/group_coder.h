// Codes the keys or values of a group of layers: maps them to coefficients, divides these by a step and codes
// the levels (io/archive/level_coder.h); and back. The step alone says how many bits are spent: halving it
// takes one more bit for each coefficient that is stored. The codec of KVTC, which headspan's is compared
// with, has runs of coefficients in place of levels (io/archive/run_coder.h). Not rotary embeddings: keys are
// given and returned without them.
#pragma once

#include <cstdint>
#include <vector>

#include "io/archive/group_analysis.h"
#include "io/archive/group_synthesis.h"
#include "io/archive/kv_codec.h"
#include "io/archive/level_coder.h"

namespace headspan {

class GroupCoder {
 public:
  /// The arguments must outlive it. Throws InputError if the basis has no inverse. Its maps take 8 to 10 D
  /// n bytes.
  GroupCoder(const KvCodec& codec, const CodecGroup& group, const LevelCoder& levels);

  /// Returns the coefficients of x: [tokens, n]. x: [tokens, D]. The same bits for any number of threads.
  /// Local.
  std::vector<float> coefficients(const float* x, std::int64_t tokens) const {
    return analysis_.exact(x, tokens, coefficients_);
  }

  /// Returns the weighted sum of a token's squared coefficients, which tells its class. Local.
  float energy(const float* coefficients) const;

  /// Returns the class of a token. Local.
  std::uint8_t class_of(const float* coefficients) const;

  /// Codes x: [tokens, D], finite, at most kBlockTokens, with a step of 2^(step / kPerOctave). The bytes do
  /// not depend on the number of threads. Throws InputError if a number is too large for the step. The
  /// threads of this process share the work. Local.
  std::vector<std::uint8_t> encode(const float* x, std::int64_t tokens, int step) const;

  /// Sets x: [tokens, D]. Throws InputError if the bytes are not those of such a block. Local.
  void decode(const std::uint8_t* bytes, std::int64_t size, std::int64_t tokens, int step, float* x) const;

 private:
  /// How a block is coded: the first `count` coefficients, and their models by class, [kTokenClasses, count].
  struct Levels {
    std::int64_t count = 0;
    std::vector<int> models;
  };

  Levels levels_of(int step) const;
  std::int64_t weighted() const;  // coefficients of which the last one tells about a token's class
  const std::vector<CodedRun>& runs_of(int step) const;

  const CodecGroup& group_;
  const LevelCoder& levels_;
  std::int64_t columns_, coefficients_;  // D, n
  int lowest_deviation_;
  std::int64_t models_;
  GroupAnalysis analysis_;
  GroupSynthesis synthesis_;
};

}  // namespace headspan
