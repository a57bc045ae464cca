// The sidecar of a token file: a small JSON object beside it that says what it holds. It is the token file's
// name with its last extension replaced by .json (docs.fit.bin: docs.fit.json). Whether it is true is for
// TokenFile to check.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace headspan {

/// What a sidecar says; what it leaves out is empty. Fields other than these are ignored.
struct TokenSidecar {
  std::string path;
  std::string dtype;
  std::optional<std::int64_t> count;
  std::optional<std::int64_t> vocab_size;
  std::vector<std::int64_t> eos;  ///< in the file one id or a list
  std::string tokenizer;
  std::optional<std::int64_t> text_bytes;  ///< UTF-8 bytes of the text that was tokenised
  std::string sha256;                      ///< of the token file, 64 lower-case digits
};

/// Where the sidecar of the token file at `token_path` is looked for.
std::string token_sidecar_path(const std::string& token_path);

/// The sidecar of the token file at `token_path`; nothing where there is none. Throws InputError when it is
/// not a JSON object or a field has a wrong type or range.
std::optional<TokenSidecar> read_token_sidecar(const std::string& token_path);

}  // namespace headspan
