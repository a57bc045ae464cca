// SHA-256 (FIPS 180-4) of bytes that arrive in chunks, of a text, and of a file, as 64 lower-case hexadecimal
// digits. libcrypto computes it, with the SHA instructions of the processor.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

struct evp_md_ctx_st;  // libcrypto's EVP_MD_CTX

namespace headspan {

class Sha256 {
 public:
  /// Throws Error if libcrypto offers no SHA-256.
  Sha256();

  /// Appends `bytes` bytes.
  void update(const void* data, std::int64_t bytes);

  /// Returns the digest of everything appended. Call it once; the object is of no use afterwards.
  std::string hex();

 private:
  struct Free {
    void operator()(evp_md_ctx_st* context) const;
  };
  std::unique_ptr<evp_md_ctx_st, Free> context_;
};

/// Returns the digest of `bytes`.
std::string sha256_hex(std::string_view bytes);

/// Returns the digest of the file at `path`, read once through a buffer of 4 MiB. Throws as InputFile does.
std::string sha256_file(const std::string& path);

}  // namespace headspan
