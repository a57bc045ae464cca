// The file of an archive: bytes come back or are refused.
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "io/archive/archive_file.h"
#include "support/input_error.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

/// Returns a block's bytes and its CRC-32 (ISO 3309, bit by bit), as they stand before it.
std::string pair_before(const std::string& block) {
  std::uint32_t remainder = ~0U;
  for (const char c : block) {
    remainder ^= static_cast<std::uint8_t>(c);
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ ((remainder & 1) != 0 ? 0xedb88320U : 0);
  }
  std::string text;
  for (const std::uint32_t number : {static_cast<std::uint32_t>(block.size()), ~remainder})
    for (int byte = 0; byte < 4; ++byte) text.push_back(static_cast<char>(number >> (8 * byte)));
  return text;
}

class ArchiveFileTest : public testing::Test {
 protected:
  static ArchiveHeader header() {
    ArchiveHeader header;
    header.codec_sha256 = "codec";
    header.config_sha256 = "config";
    header.weights_digest = "weights";
    header.layers = 3;
    header.kv_heads = 2;
    header.head_size = 4;
    header.tokens = 300;
    header.first_position = 7;
    header.exact = {0, 1, 200, 201};
    header.type = ElementType::bfloat16;
    header.step = -37;
    header.blocks = 3;
    return header;
  }

  static std::vector<std::vector<std::uint8_t>> blocks() {
    return {{1, 2, 3}, {}, std::vector<std::uint8_t>(1000, 9)};
  }

  std::string written() {
    ArchiveWriter writer(path_, header());
    for (const auto& block : blocks()) writer.append(block);
    writer.finish();
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// Returns why these bytes are refused when they are opened or read.
  std::string refusal_of(const std::string& bytes) {
    std::ofstream(path_, std::ios::binary) << bytes;
    return input_error_of([&] {
      const ArchiveReader reader(path_);
      for (std::int64_t block = 0; block < reader.header().blocks; ++block) reader.read(block);
    });
  }

  TempFolder folder_{"archive_file"};
  std::string path_ = folder_.path("archive");
};

TEST_F(ArchiveFileTest, ReadsWhatWasWritten) {
  const std::string bytes = written();
  const ArchiveReader reader(path_);
  const ArchiveHeader& read = reader.header();
  EXPECT_EQ(read.codec_sha256, "codec");
  EXPECT_EQ(read.config_sha256, "config");
  EXPECT_EQ(read.weights_digest, "weights");
  EXPECT_EQ(read.layers, 3);
  EXPECT_EQ(read.kv_heads, 2);
  EXPECT_EQ(read.head_size, 4);
  EXPECT_EQ(read.tokens, 300);
  EXPECT_EQ(read.coded_tokens(), 296);
  EXPECT_EQ(read.first_position, 7);
  EXPECT_EQ(read.exact, header().exact);
  EXPECT_EQ(read.type, ElementType::bfloat16);
  EXPECT_EQ(read.step, -37);
  EXPECT_EQ(reader.bytes(), static_cast<std::int64_t>(bytes.size()));
  for (const std::int64_t block : {2, 0, 1}) EXPECT_EQ(reader.read(block), blocks()[to_size(block)]);
}

TEST_F(ArchiveFileTest, RefusesEveryCutAndEveryFlippedBit) {
  const std::string bytes = written();
  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_NE(refusal_of(bytes.substr(0, size)), "nothing was refused") << size;
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ 1 << bit);
      const std::string refusal = refusal_of(changed);
      ASSERT_NE(refusal, "nothing was refused") << i;
      ASSERT_NE(refusal.find(path_), std::string::npos) << refusal;
    }
  EXPECT_NE(refusal_of(bytes + "more bytes").find("is cut off"), std::string::npos);
  EXPECT_NE(refusal_of(bytes + std::string(8, '\0')).find("has not as many blocks"), std::string::npos);
}

TEST_F(ArchiveFileTest, RefusesHeadersThatAreWrong) {
  const std::vector<std::pair<const char*, nlohmann::json>> cases{{"headspan_archive", "2.0"},
                                                                  {"headspan_archive", 1},
                                                                  {"layers", 0},
                                                                  {"kv_heads", "2"},
                                                                  {"head_size", 0.5},
                                                                  {"tokens", -1},
                                                                  {"tokens", 1e30},
                                                                  {"tokens", 201},
                                                                  {"first_position", -1},
                                                                  {"exact", {3, 3}},
                                                                  {"exact", {300}},
                                                                  {"exact", 5},
                                                                  {"type", "float8"},
                                                                  {"step", "fine"},
                                                                  {"step", 5000},
                                                                  {"blocks", 4},
                                                                  {"blocks", std::uint64_t{1} << 63},
                                                                  {"codec_sha256", nullptr},
                                                                  {"config_sha256", {1, 2}},
                                                                  {"weights_digest", 3}};
  const std::string bytes = written();
  const std::size_t begin = bytes.find('{'), end = bytes.find('}') + 1;
  for (const auto& [field, value] : cases) {
    auto object = nlohmann::json::parse(bytes.substr(begin, end - begin));
    object[field] = value;
    // an archive with that header, whose checksum is right
    const std::string text = object.dump();
    std::ofstream(path_, std::ios::binary)
        << bytes.substr(0, 8) << pair_before(text) << text << bytes.substr(end);
    const std::string refusal = input_error_of([&] { ArchiveReader{path_}; });
    EXPECT_NE(refusal, "nothing was refused") << field << value;
    EXPECT_NE(refusal.find(path_), std::string::npos) << refusal;
  }
  const auto whole = nlohmann::json::parse(bytes.substr(begin, end - begin));
  for (const auto& field : whole.items()) {
    auto object = whole;
    object.erase(field.key());
    const std::string text = object.dump();
    std::ofstream(path_, std::ios::binary)
        << bytes.substr(0, 8) << pair_before(text) << text << bytes.substr(end);
    EXPECT_NE(input_error_of([&] { ArchiveReader{path_}; }).find(field.key() + ": is missing"),
              std::string::npos)
        << field.key();
  }
}

}  // namespace
}  // namespace headspan
