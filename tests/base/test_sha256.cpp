// Expected digests: the examples of FIPS 180-4 (NIST's SHA_All.pdf), and sha256sum of coreutils for the file.
#include <cstdio>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "base/sha256.h"

namespace headspan {
namespace {

TEST(Sha256, AgreesWithTheExamplesOfTheStandard) {
  EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha256_hex("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmno"
                       "ijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}

TEST(Sha256, TakesItsBytesInChunks) {
  const std::string chunk(1000, 'a');
  Sha256 hash;

  for (int i = 0; i < 1000; ++i) hash.update(chunk.data(), 1000);

  EXPECT_EQ(hash.hex(), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, ReadsAFileLongerThanItsBuffer) {
  const std::string path = testing::TempDir() + "headspan_sha256_" + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << std::string((9 << 20) + 1, 'x');

  const std::string digest = sha256_file(path);

  std::remove(path.c_str());
  EXPECT_EQ(digest, "a877b9af0284fb952bfc573c50be0340ce620b2363a34e44dd2d4b251d1c5c8a");
}

TEST(Sha256, NamesAFileThatIsMissing) {
  try {
    sha256_file("/no/such/file");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_STREQ(
        error.what(),
        "/no/such/file: cannot be opened: No such file or directory; give the path of a readable file");
  }
}

}  // namespace
}  // namespace headspan
