// Token files: ids of a tokenizer's vocabulary, in order, as other tools write them. Three layouts:
//   raw       little-endian integers without a header (numpy's tofile, OLMo's headerless .npy);
//   npy       a true NPY file: one axis, any integer type, little-endian;
//   megatron  NAME.bin beside NAME.idx, which says the integer type and where documents begin.
// A sidecar (io/inputs/token_sidecar.h) may say what the file holds; it must not contradict the file. Not a
// tokenizer, and not the cutting into sequences (io/inputs/sequences.h).
//
// Nothing here communicates: any rank may open and read on its own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/input_file.h"
#include "base/word_list.h"
#include "io/inputs/megatron_index.h"
#include "io/inputs/token_sidecar.h"

namespace headspan {

enum class TokenFormat { raw, npy, megatron };

inline const WordList<TokenFormat>& token_format_words() {
  static const WordList<TokenFormat> words{
      {"raw", TokenFormat::raw}, {"npy", TokenFormat::npy}, {"megatron", TokenFormat::megatron}};
  return words;
}

/// The integer types that a job may say raw ids have.
enum class RawIdType { uint16, uint32 };

inline const WordList<RawIdType>& raw_id_words() {
  static const WordList<RawIdType> words{{"uint16", RawIdType::uint16}, {"uint32", RawIdType::uint32}};
  return words;
}

/// The integer type of one id: "uint16" and the like.
struct TokenType {
  std::string name;
  int bytes;
  bool is_signed;
};

class TokenFile {
 public:
  /// Opens and checks headers, sizes and the sidecar. Without a `format` the file is npy by its magic bytes,
  /// megatron by a NAME.idx beside it, else raw. Without a `dtype` header or sidecar say the type of ids.
  /// Where neither does, raw ids are uint32 for a model whose
  /// vocabulary of `vocab_size` needs it, else uint16; the first ids are read, and a file that could be of
  /// another type is refused. Throws InputError where the file is not what it is said to be.
  static TokenFile open(const std::string& path, std::optional<TokenFormat> format = {},
                        std::optional<RawIdType> dtype = {}, std::optional<std::int64_t> vocab_size = {});

  const std::string& path() const { return file_.path(); }
  TokenFormat format() const { return format_; }
  const TokenType& type() const { return type_; }
  const std::optional<TokenSidecar>& sidecar() const { return sidecar_; }

  /// Ids in the file, at least 1.
  std::int64_t count() const { return count_; }

  /// The ids at [start, start + count), a range within count(). An id of 2^63 or more comes out negative.
  std::vector<std::int64_t> read(std::int64_t start, std::int64_t count) const;

  /// Megatron: the positions one past the last id of each document, ascending, up to the first at or beyond
  /// `limit`. Empty for the other formats, which do not know their documents.
  std::vector<std::int64_t> document_ends(std::int64_t limit) const;

 private:
  explicit TokenFile(const std::string& path) : file_(path) {}
  void choose_format(std::optional<TokenFormat> asked);
  void choose_type(const std::string& header, std::optional<RawIdType> asked,
                   std::optional<std::int64_t> vocab_size);
  std::string infer_raw_type(std::optional<std::int64_t> vocab_size) const;
  std::vector<std::uint32_t> first_words() const;
  void count_ids();

  InputFile file_;
  std::optional<MegatronIndex> index_;
  TokenFormat format_ = TokenFormat::raw;
  TokenType type_{"uint16", 2, false};
  std::int64_t data_begin_ = 0;
  std::int64_t count_ = 0;
  std::optional<TokenSidecar> sidecar_;
};

/// SHA-256 of the whole token file at `path`, of whatever format and type, read once. Throws InputError when
/// its sidecar names another. One rank is enough.
std::string hash_token_file(const std::string& path);

}  // namespace headspan
