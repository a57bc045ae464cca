// Token files: ids of a tokenizer's vocabulary, in order, as other tools write them. Three layouts:
//   raw       little-endian integers without a header (numpy's tofile, OLMo's headerless .npy);
//   npy       a true NPY file: one axis, any integer type, little-endian;
//   megatron  NAME.bin beside NAME.idx, which says the integer type and where documents begin.
// A sidecar (io/inputs/token_sidecar.h) may say what the file holds; it must not contradict the file. Neither
// a tokenizer nor what cuts ids into sequences (io/inputs/sequences.h).
//
// Nothing here communicates: each rank opens and reads on its own.
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

/// The types of raw ids that a job can name.
enum class RawIdType { uint16, uint32 };

inline const WordList<RawIdType>& raw_id_words() {
  static const WordList<RawIdType> words{{"uint16", RawIdType::uint16}, {"uint32", RawIdType::uint32}};
  return words;
}

/// The integer type of an id; `name` is numpy's, such as "uint16".
struct TokenType {
  std::string name;
  int bytes;
  bool is_signed;
};

class TokenFile {
 public:
  /// Opens a file and checks its header, its size and its sidecar. Without a `format` the file is npy if it
  /// has the magic bytes, megatron if it has a NAME.idx beside it, else raw. Without a `dtype` the header or
  /// the sidecar says the type of ids; if neither does, raw ids are uint32 for a model whose vocabulary of
  /// `vocab_size` needs it, else uint16; the first ids are then read, and a file that could be of another
  /// type is refused. Throws InputError if the file is not what it is said to be.
  static TokenFile open(const std::string& path, std::optional<TokenFormat> format = {},
                        std::optional<RawIdType> dtype = {}, std::optional<std::int64_t> vocab_size = {});

  const std::string& path() const { return file_.path(); }
  TokenFormat format() const { return format_; }
  const TokenType& type() const { return type_; }
  const std::optional<TokenSidecar>& sidecar() const { return sidecar_; }

  /// The number of ids in the file, at least 1.
  std::int64_t count() const { return count_; }

  /// Reads the ids at [start, start + count), a range within count(). An id of 2^63 or more becomes negative.
  std::vector<std::int64_t> read(std::int64_t start, std::int64_t count) const;

  /// Returns where the documents of a megatron file end (MegatronIndex::document_ends); empty for the other
  /// formats, which do not know their documents.
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

/// Returns the SHA-256 of the whole token file at `path`, whatever its format, read once. Throws InputError
/// if its sidecar names another digest. Local.
std::string hash_token_file(const std::string& path);

}  // namespace headspan
