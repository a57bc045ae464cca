// Where the tokens of a sequence are in an archive: which chunk codes a token, and which block of the file a
// group of a chunk is; and block 0, which has the tokens that are kept as they are.
#pragma once

#include <cstdint>
#include <vector>

#include "base/range.h"
#include "io/archive/archive_file.h"
#include "io/archive/kv_coder.h"

namespace headspan {

class ArchiveLayout {
 public:
  /// groups: blocks of a chunk (KvCoder::blocks). The header must outlive it.
  ArchiveLayout(const ArchiveHeader& header, std::int64_t groups);

  std::int64_t chunks() const;
  std::int64_t blocks() const { return 1 + chunks() * groups_; }  ///< of the file
  std::int64_t block(std::int64_t chunk, std::int64_t group) const { return 1 + chunk * groups_ + group; }

  /// Returns the tokens of a chunk, ascending: kBlockTokens, or what is left in the last one.
  std::vector<std::int64_t> tokens(std::int64_t chunk) const;

  /// Returns the positions of tokens, for the rotary embedding.
  std::vector<std::int64_t> positions(std::vector<std::int64_t> tokens) const;

  /// Whether a chunk has tokens of the range.
  bool has_tokens(std::int64_t chunk, const Range& range) const;

 private:
  std::int64_t nth_coded(std::int64_t n) const;

  const ArchiveHeader& header_;
  std::int64_t groups_;
};

/// Returns block 0: the exact tokens in the archive's type, [stream, layer, token, head, d]. Local.
std::vector<std::uint8_t> exact_block(const ArchiveHeader& header, const ReadLayer& read);

/// Passes on the exact tokens of block 0, layer by layer of the range. Throws InputError if the block has not
/// the bytes that the header says. Local.
void read_exact_block(const ArchiveHeader& header, const std::vector<std::uint8_t>& block,
                      const Range& layers, const TakeLayer& take);

}  // namespace headspan
