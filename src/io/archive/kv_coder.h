// Codes the keys and values of one sequence in chunks of kBlockTokens tokens, each of which is a block for
// every group of a codec: takes the rotary embedding away from keys, codes groups (io/archive/group_coder.h),
// and back. Tokens that an archive keeps as they are do not come here, nor does the file
// (io/archive/archive_file.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/range.h"
#include "io/archive/group_coder.h"
#include "io/archive/kv_codec.h"

namespace headspan {

/// Reads the keys or values of a layer at some tokens into [tokens, kv_heads, d].
using ReadLayer = std::function<void(Stream stream, std::int64_t layer,
                                     const std::vector<std::int64_t>& tokens, float* to)>;

/// Takes the keys or values of a layer at some tokens: [tokens, kv_heads, d].
using TakeLayer = std::function<void(Stream stream, std::int64_t layer,
                                     const std::vector<std::int64_t>& tokens, const float* values)>;

class KvCoder {
 public:
  /// Prepares the maps of all groups. Throws InputError if the codec's numbers contradict each other.
  explicit KvCoder(KvCodec codec);
  KvCoder(const KvCoder&) = delete;
  KvCoder& operator=(const KvCoder&) = delete;

  const KvCodec& codec() const { return codec_; }

  /// Blocks of a chunk: the groups of k, then those of v.
  std::int64_t blocks() const { return static_cast<std::int64_t>(groups_.size()); }

  /// Returns the blocks of these tokens, at most kBlockTokens. positions: of each, for the rotary embedding.
  /// step: see GroupCoder. Throws InputError as GroupCoder does. Local.
  std::vector<std::vector<std::uint8_t>> encode(const std::vector<std::int64_t>& tokens,
                                                const std::vector<std::int64_t>& positions, int step,
                                                const ReadLayer& read) const;

  /// Whether a block holds a layer of the range.
  bool has_layers(std::int64_t block, const Range& layers) const;

  /// Decodes a block of a chunk and passes on its layers that are in the range. Throws InputError. Local.
  void decode(std::int64_t block, const std::vector<std::uint8_t>& bytes,
              const std::vector<std::int64_t>& tokens, const std::vector<std::int64_t>& positions, int step,
              const Range& layers, const TakeLayer& take) const;

 private:
  struct Group {
    Stream stream;
    const CodecGroup* group;
    GroupCoder coder;
  };

  /// The tables of all rules at some positions.
  std::vector<RotaryTable> tables_at(const std::vector<std::int64_t>& positions) const;
  /// Returns the table of a layer; null if nothing is rotated there.
  const RotaryTable* table_of(Stream stream, std::int64_t layer,
                              const std::vector<RotaryTable>& tables) const;

  KvCodec codec_;
  LevelCoder levels_;
  std::vector<Group> groups_;
};

}  // namespace headspan
