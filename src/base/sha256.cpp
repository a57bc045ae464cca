#include "base/sha256.h"

#include <algorithm>
#include <vector>

#include <openssl/evp.h>

#include "base/error.h"
#include "base/input_file.h"

namespace headspan {
namespace {

void check(bool ok) {
  if (!ok) throw Error("libcrypto cannot compute a SHA-256 digest");
}

}  // namespace

void Sha256::Free::operator()(evp_md_ctx_st* context) const { EVP_MD_CTX_free(context); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check(context_ && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
}

void Sha256::update(const void* data, std::int64_t bytes) {
  HS_ASSERT(bytes >= 0);
  check(EVP_DigestUpdate(context_.get(), data, static_cast<std::size_t>(bytes)) == 1);
}

std::string Sha256::hex() {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int length = 0;
  check(EVP_DigestFinal_ex(context_.get(), digest, &length) == 1);
  constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  for (unsigned int i = 0; i < length; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

std::string sha256_hex(std::string_view bytes) {
  Sha256 hash;
  hash.update(bytes.data(), static_cast<std::int64_t>(bytes.size()));
  return hash.hex();
}

std::string sha256_file(const std::string& path) {
  constexpr std::int64_t kBuffer = 4 << 20;
  const InputFile file(path);
  std::vector<char> buffer(static_cast<std::size_t>(std::min(kBuffer, file.size())));
  Sha256 hash;
  for (std::int64_t offset = 0; offset < file.size(); offset += kBuffer) {
    const std::int64_t bytes = std::min(kBuffer, file.size() - offset);
    file.read(offset, bytes, buffer.data());
    hash.update(buffer.data(), bytes);
  }
  return hash.hex();
}

}  // namespace headspan
