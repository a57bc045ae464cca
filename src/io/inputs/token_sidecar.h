// The sidecar of a token file: a small JSON object beside it that says what it holds. Its name is the token
// file's with the last extension replaced by .json (docs.fit.bin: docs.fit.json). TokenFile checks whether it
// agrees with the file.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headspan {

/// What a sidecar says. What it leaves out is empty; fields other than these are ignored.
struct TokenSidecar {
  std::string path;
  std::string dtype;
  std::optional<std::int64_t> count;
  std::optional<std::int64_t> vocab_size;
  std::vector<std::int64_t> eos;  ///< a single id or a list in the file
  std::string tokenizer;
  std::optional<std::int64_t> text_bytes;  ///< size of the tokenised text in UTF-8
  std::string sha256;                      ///< of the token file, as 64 lower-case digits
};

/// Returns the path of the sidecar that the token file at `token_path` may have.
std::string token_sidecar_path(const std::string& token_path);

/// Reads the sidecar of the token file at `token_path`; nothing if there is none. Throws InputError if it is
/// not a JSON object or a field has a wrong type or range.
std::optional<TokenSidecar> read_token_sidecar(const std::string& token_path);

}  // namespace headspan
