// The reader on handwritten files (safetensors_samples.h), on damaged ones, and on known bytes.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "io/checkpoint/safetensors.h"
#include "safetensors_samples.h"

namespace headspan {
namespace {

/// Returns the InputError for a file; empty if it is accepted.
std::string refusal(const std::string& file) {
  try {
    parse_safetensors_header("FILE", file, static_cast<std::int64_t>(file.size()));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

const std::string kTwoTensors = safetensors_file(
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"first\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"second\":{\"dtype\":\"BF16\",\"shape\":[4],\"data_offsets\":[24,32]}}",
    32);

TEST(SafetensorsHeader, SaysToEverySampleWhatItShould) {
  const auto samples = safetensors_samples();
  ASSERT_GE(samples.size(), 48u);

  for (const auto& sample : samples) {
    const std::string wrong = refusal(sample.file);

    if (sample.wrong == nullptr)
      EXPECT_EQ(wrong, "") << sample.name;
    else
      EXPECT_NE(wrong.find(sample.wrong), std::string::npos) << sample.name << ": " << wrong;
  }
}

TEST(SafetensorsHeader, RefusesInOneShortLine) {
  for (const auto& sample : safetensors_samples()) {
    const std::string wrong = refusal(sample.file);

    EXPECT_LT(wrong.size(), 500u) << sample.name;
    EXPECT_EQ(wrong.find_first_of(std::string("\n\r\0", 3)), std::string::npos) << sample.name;
    EXPECT_EQ(wrong.rfind("FILE: ", 0), wrong.empty() ? std::string::npos : 0u) << sample.name;
  }
}

TEST(SafetensorsHeader, RefusesEverySampleWithBytesBehindIt) {
  std::mt19937_64 random(1);

  for (const auto& sample : safetensors_samples()) {
    std::string file = sample.file;
    for (int i = 0; i < 5; ++i) file += static_cast<char>(random());

    EXPECT_NE(refusal(file), "") << sample.name;
  }
}

TEST(SafetensorsHeader, RefusesEveryTruncation) {
  for (std::size_t size = 0; size < kTwoTensors.size(); ++size)
    EXPECT_NE(refusal(kTwoTensors.substr(0, size)), "") << "cut to " << size << " bytes";
}

// Whatever single byte is changed, the file is refused, or accepted with tensors that cover the data.
TEST(SafetensorsHeader, SurvivesRandomDamage) {
  std::mt19937_64 random(2);
  int accepted = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    std::string file = kTwoTensors;
    for (std::uint64_t i = 0; i < 1 + random() % 3; ++i)
      file[random() % file.size()] = static_cast<char>(random());

    if (!refusal(file).empty()) continue;

    ++accepted;
    std::int64_t bytes = 0;
    for (const auto& tensor : parse_safetensors_header("FILE", file, static_cast<std::int64_t>(file.size())))
      bytes += tensor.second.bytes();
    EXPECT_EQ(bytes, 32);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, 20000);
}

TEST(SafetensorsHeader, RefusesAHugeLengthBeforeItReadsOn) {
  const std::string start("\x01\xE1\xF5\x05\0\0\0\0", 8);  // 100 000 001

  EXPECT_THROW(safetensors_header_length("FILE", start, std::int64_t{1} << 40), InputError);
}

TEST(SafetensorsHeader, GivesEveryDtypeItsSize) {
  const std::pair<const char*, int> sizes[] = {
      {"BOOL", 8},        {"F4", 4},      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8},          {"I8", 8},
      {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16},    {"F8_E4M3FNUZ", 8}, {"U16", 16},
      {"F8_E5M2FNUZ", 8}, {"F16", 16},    {"BF16", 16},   {"I32", 32},    {"U32", 32},        {"F32", 32},
      {"C64", 64},        {"F64", 64},    {"I64", 64},    {"U64", 64}};

  for (const auto& [dtype, bits] : sizes) EXPECT_EQ(dtype_bits(dtype), bits) << dtype;
  EXPECT_EQ(dtype_bits("F128"), 0);
  EXPECT_EQ(dtype_bits(""), 0);
}

class SafetensorsFileTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string file = kTwoTensors;
    for (std::size_t i = 0; i < 32; ++i) file[file.size() - 32 + i] = static_cast<char>(i);
    std::ofstream(path_, std::ios::binary) << file;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "headspan_safetensors_" + std::to_string(getpid());
};

TEST_F(SafetensorsFileTest, GivesTensorsWithDtypeAndShape) {
  const auto file = SafetensorsFile::open(path_);

  ASSERT_EQ(file.tensors().size(), 2u);
  const TensorEntry& first = file.tensors().at("first");
  EXPECT_EQ(first.dtype, "F32");
  EXPECT_EQ(first.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(first.bytes(), 24);
  EXPECT_EQ(file.tensors().at("second").dtype, "BF16");
}

TEST_F(SafetensorsFileTest, ReadsSlicesAndCountsThem) {
  const auto file = SafetensorsFile::open(path_);
  char row[12], tail[3];

  file.read(file.tensors().at("first"), 12, 12, row);
  file.read(file.tensors().at("second"), 5, 3, tail);

  for (int i = 0; i < 12; ++i) EXPECT_EQ(row[i], 12 + i);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(tail[i], 24 + 5 + i);
  EXPECT_EQ(file.bytes_read(), 15);
}

TEST_F(SafetensorsFileTest, TellsThatTheFileBecameShorterWhileOpen) {
  const auto file = SafetensorsFile::open(path_);
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);
  char bytes[8];

  EXPECT_THROW(file.read(file.tensors().at("second"), 0, 8, bytes), Error);
}

TEST_F(SafetensorsFileTest, NamesTheFileThatItRefuses) {
  std::filesystem::resize_file(path_, std::filesystem::file_size(path_) - 1);

  try {
    SafetensorsFile::open(path_);
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.what(),
              path_ +
                  ": tensor 'second' data_offsets = [24, 32]: reach beyond the data, which has 31 bytes; "
                  "the file is damaged: fetch or write it again");
  }
}

}  // namespace
}  // namespace headspan
