// An archive: coded keys and values of one sequence. Bytes, all little-endian:
//
//   8                 "hsarchiv"
//
//   4, 4              bytes of the header, and its CRC-32
//
//   header            a JSON object: the fields of ArchiveHeader, and headspan_archive, the schema
//
//   per block: 4, 4   bytes of the block, and its CRC-32 (zlib's)
//
//   block             block 0: the exact tokens as they are (io/archive/archive_layout.h); then for every
//                     kBlockTokens others, in order, k's groups and v's groups as io/archive/group_coder.h
//                     codes them
//
// Not what a block means: this file reads and writes bytes, and makes sure that they are those that were
// written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/output_file.h"
#include "io/archive/element_type.h"

namespace headspan {

constexpr std::int64_t kBlockHead = 8;  ///< bytes before each block: its length and its CRC-32

struct ArchiveHeader {
  std::string codec_sha256;                   ///< of the codec's file
  std::string config_sha256, weights_digest;  ///< of the model
  std::int64_t layers = 0, kv_heads = 0, head_size = 0;
  std::int64_t tokens = 0;
  std::int64_t first_position = 0;          ///< of the sequence's first token, for the rotary embedding
  std::vector<std::int64_t> exact;          ///< tokens that are kept as they are, ascending
  ElementType type = ElementType::float16;  ///< of the numbers before they were coded
  std::int64_t step = 0;                    ///< sixteenths of an octave
  std::int64_t blocks = 0;                  ///< after the header
  std::string schema;                       ///< of an archive that is read

  /// Returns how many tokens are coded.
  std::int64_t coded_tokens() const { return tokens - static_cast<std::int64_t>(exact.size()); }
};

class ArchiveWriter {
 public:
  /// Creates the file and writes its header. Throws Error.
  ArchiveWriter(const std::string& path, const ArchiveHeader& header);

  /// Appends the next block. Throws Error.
  void append(const std::vector<std::uint8_t>& block);

  /// Closes the file, after header.blocks blocks. Flushing to the disk is who publishes the file's part.
  /// Throws Error.
  void finish();

 private:
  OutputFile file_;
  std::int64_t left_;
};

class ArchiveReader {
 public:
  /// Opens an archive and reads its header and where its blocks are. Throws InputError if it is none, is cut
  /// off or has an unknown schema; its memory is bounded by the file's size.
  explicit ArchiveReader(const std::string& path);

  /// Returns whether a file begins as archives do. Throws as InputFile does.
  static bool is_archive(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const ArchiveHeader& header() const { return header_; }
  std::int64_t bytes() const { return file_.size(); }

  /// Returns a block. Throws InputError if it is not what was written.
  std::vector<std::uint8_t> read(std::int64_t block) const;

 private:
  struct Entry {
    std::int64_t offset;
    std::uint32_t bytes, checksum;
  };

  InputFile file_;
  ArchiveHeader header_;
  std::vector<Entry> blocks_;
};

}  // namespace headspan
