// SHA-256 (FIPS 180-4) of bytes that arrive in pieces, of a text, and of a file; written as 64 lower-case
// hexadecimal digits. The work is libcrypto's, which uses the SHA instructions of the processor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // libcrypto's EVP_MD_CTX

namespace headspan {

class Sha256 {
 public:
  /// Throws Error when libcrypto has no SHA-256 to offer.
  Sha256();

  /// Appends `bytes` bytes.
  void update(const void* data, std::int64_t bytes);

  /// The digest of everything appended. Ends this object's use: call it once.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// The digest of `bytes`.
std::string sha256_hex(std::string_view bytes);

/// The digest of the file at `path`, read once through a buffer of 4 MiB. Throws as InputFile does.
std::string sha256_file(const std::string& path);

}  // namespace headspan
