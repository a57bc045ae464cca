// Archives whose bytes were changed, with checksums that are right again: they are refused, or decoded to
// numbers; nothing else happens, which sanitizers see best. HEADSPAN_FUZZ_SECONDS: how long each test runs.
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include <gtest/gtest.h>
#include <zlib.h>

#include "base/checked.h"
#include "base/error.h"
#include "io/archive/archive_file.h"
#include "io/archive/archive_layout.h"
#include "io/archive/run_coder.h"
#include "small_codec.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// Changes bytes, a few times at a time: bits, whole numbers, and which bytes there are.
class Mutator {
 public:
  Bytes changed(Bytes bytes) {
    for (auto left = 1 + below(4); left > 0; --left) change(bytes);
    return bytes;
  }

  std::size_t below(std::size_t end) { return static_cast<std::size_t>(random_.next() % end); }

 private:
  void change(Bytes& bytes) {
    if (bytes.empty()) return bytes.push_back(static_cast<std::uint8_t>(random_.next()));
    const std::size_t at = below(bytes.size()),
                      count = 1 + below(std::min<std::size_t>(16, bytes.size() - at));
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at),
               last = first + static_cast<std::ptrdiff_t>(count);
    switch (below(6)) {
      case 0:
        *first = static_cast<std::uint8_t>(*first ^ 1 << below(8));
        break;
      case 1:
        *first = static_cast<std::uint8_t>(random_.next());
        break;
      case 2:
        std::fill(first, last, below(2) == 0 ? std::uint8_t{0} : std::uint8_t{255});
        break;
      case 3:
        bytes.erase(first, last);
        break;
      case 4:
        bytes.insert(first, count, *first);
        break;
      default:
        bytes.resize(at);
    }
  }

  SplitMix64 random_{2026};
};

/// Calls use() until the time is over, and counts how often it throws InputError.
class Rounds {
 public:
  template <class Use>
  explicit Rounds(const Use& use) {
    const char* const given = std::getenv("HEADSPAN_FUZZ_SECONDS");
    const std::chrono::duration<double> seconds(given != nullptr ? std::atof(given) : 0.5);
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < seconds || all < 100) {
      ++all;
      try {
        use();
      } catch (const InputError&) {
        ++refused;
      }
    }
    std::printf("%ld of %ld were refused\n", refused, all);
  }

  long all = 0, refused = 0;
};

class ArchiveFuzzTest : public testing::Test {
 protected:
  static constexpr std::int64_t kTokens = 40;
  static constexpr int kStep = -20;

  ArchiveFuzzTest() {
    for (std::int64_t token = 0; token < kTokens; ++token) tokens_.push_back(token);
    blocks_ = coder_.encode(
        tokens_, tokens_, kStep, [&](Stream, std::int64_t layer, const auto& tokens, float* to) {
          for (const double x :
               normal_numbers(static_cast<std::int64_t>(tokens.size()) * 2 * 4, 3 + to_size(layer)))
            *to++ = static_cast<float>(3 * x);
        });
  }

  /// Decodes a block; its numbers are finite.
  void decode(std::int64_t block, const Bytes& bytes, int step = kStep) const {
    coder_.decode(block, bytes, tokens_, tokens_, step, {0, 3},
                  [](Stream, std::int64_t, const auto& tokens, const float* values) {
                    for (std::size_t i = 0; i < tokens.size() * 2 * 4; ++i)
                      ASSERT_TRUE(std::isfinite(values[i]));
                  });
  }

  KvCoder coder_{small_codec()};
  std::vector<std::int64_t> tokens_;
  std::vector<Bytes> blocks_;
  Mutator mutator_;
};

TEST_F(ArchiveFuzzTest, Blocks) {
  for (std::size_t block = 0; block < blocks_.size(); ++block)
    decode(static_cast<std::int64_t>(block), blocks_[block]);
  const Rounds rounds([&] {
    const std::size_t block = mutator_.below(blocks_.size());
    decode(static_cast<std::int64_t>(block), mutator_.changed(blocks_[block]));
  });
  EXPECT_GT(rounds.refused, rounds.all * 9 / 10);  // each block ends as it began
}

TEST_F(ArchiveFuzzTest, BlocksOfRuns) {
  const std::vector<CodedRun> runs{{7, 8}, {9, 4}, {5, 2}};
  const std::int64_t columns = 30;
  std::vector<float> numbers;
  for (const double x : normal_numbers(kTokens * columns, 9)) numbers.push_back(static_cast<float>(x));
  const Bytes block = encode_runs(runs, numbers.data(), kTokens, columns);
  Bytes plain(1 << 16);
  uLongf size = plain.size();
  ASSERT_EQ(uncompress(plain.data(), &size, block.data(), block.size()), Z_OK);
  plain.resize(size);
  std::vector<float> found(numbers.size());
  const Rounds rounds([&] {
    Bytes bytes = mutator_.changed(mutator_.below(2) == 0 ? block : plain);
    if (bytes.size() + 16 > plain.size()) {  // what was not packed
      Bytes packed(compressBound(bytes.size()));
      uLongf packed_size = packed.size();
      ASSERT_EQ(compress(packed.data(), &packed_size, bytes.data(), bytes.size()), Z_OK);
      packed.resize(packed_size);
      bytes = std::move(packed);
    }
    decode_runs(runs, bytes.data(), static_cast<std::int64_t>(bytes.size()), kTokens, columns, found.data());
  });
  EXPECT_GT(rounds.refused, 0);
  EXPECT_LT(rounds.refused, rounds.all);
}

/// The header and the blocks of a file, and back, with lengths and checksums that are right.
std::vector<Bytes> parts_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const Bytes bytes{std::istreambuf_iterator<char>(file), {}};
  std::vector<Bytes> parts;
  for (std::size_t at = 8; at < bytes.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, &bytes[at], sizeof size);
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(at + 8);
    parts.emplace_back(first, first + size);
    at += 8 + size;
  }
  return parts;
}

void write_parts(const std::string& path, const std::vector<Bytes>& parts) {
  std::ofstream file(path, std::ios::binary);
  file << "hsarchiv";
  for (const Bytes& part : parts) {
    const std::uint32_t head[] = {
        static_cast<std::uint32_t>(part.size()),
        static_cast<std::uint32_t>(crc32(0, part.data(), static_cast<uInt>(part.size())))};
    file.write(reinterpret_cast<const char*>(head), sizeof head);
    file.write(reinterpret_cast<const char*>(part.data()), static_cast<std::streamsize>(part.size()));
  }
}

TEST_F(ArchiveFuzzTest, Files) {
  const TempFolder folder("archive_fuzz");
  const std::string path = folder.path("archive");
  ArchiveHeader header;
  header.layers = 3;
  header.kv_heads = 2;
  header.head_size = 4;
  header.tokens = kTokens;
  header.step = kStep;
  header.blocks = 1 + static_cast<std::int64_t>(blocks_.size());
  ArchiveWriter writer(path, header);
  writer.append({});
  for (const Bytes& block : blocks_) writer.append(block);
  writer.finish();
  const std::vector<Bytes> parts = parts_of(path);
  ASSERT_EQ(parts.size(), blocks_.size() + 2);
  const Rounds rounds([&] {
    std::vector<Bytes> changed = parts;
    Bytes& part = changed[mutator_.below(2) == 0 ? 0 : mutator_.below(changed.size())];
    part = mutator_.changed(part);
    write_parts(path, changed);
    const ArchiveReader reader(path);
    const ArchiveLayout layout(reader.header(), coder_.blocks());
    for (std::int64_t block = 0; block < reader.header().blocks; ++block) {
      const Bytes bytes = reader.read(block);
      if (block > 0 && block <= coder_.blocks() && layout.blocks() == reader.header().blocks) {
        EXPECT_LE(layout.tokens(0).size(), to_size(kBlockTokens));
        decode(block - 1, bytes, to_int(reader.header().step));
      }
    }
  });
  EXPECT_GT(rounds.refused, 0);
}

}  // namespace
}  // namespace headspan
