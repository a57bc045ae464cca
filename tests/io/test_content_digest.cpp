// Digests of contents: equal for copies, different for what they must distinguish.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "io/checkpoint/content_digest.h"
#include "safetensors_samples.h"
#include "support/temp_folder.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

class ContentDigestTest : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = folder_.path(name);
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  /// Returns the digest of a folder whose file of weights has this header and data.
  std::string digest_of_weights(const std::string& header, const std::string& data) {
    write("model/config.json", "{}");
    write("model/model.safetensors", safetensors_file(header, 0) + data);
    return weights_digest(Checkpoint::open(folder_.path("model")));
  }

  TempFolder folder_{"content_digest"};
};

std::string tensor(const std::string& name, const std::string& shape, int begin, int end,
                   const std::string& dtype = "I8") {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":[" + shape + "],\"data_offsets\":[" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

TEST_F(ContentDigestTest, OfWeightsKnowsShardsAndOrdersOfOneCheckpoint) {
  const std::string single = digest_of_weights(
                        "{" + tensor("a", "2", 0, 2) + "," + tensor("b", "4", 2, 6) + "}", "AAbbbb"),
                    turned = digest_of_weights(
                        "{" + tensor("b", "4", 0, 4) + "," + tensor("a", "2", 4, 6) + "}", "bbbbAA");
  write("shards/config.json", "{}");
  write("shards/1.safetensors", safetensors_file("{" + tensor("b", "4", 0, 4) + "}", 0) + "bbbb");
  write("shards/2.safetensors", safetensors_file("{" + tensor("a", "2", 0, 2) + "}", 0) + "AA");
  write("shards/model.safetensors.index.json", R"({"weight_map":{"a":"2.safetensors","b":"1.safetensors"}})");

  EXPECT_EQ(turned, single);
  EXPECT_EQ(weights_digest(Checkpoint::open(folder_.path("shards"))), single);
}

TEST_F(ContentDigestTest, OfWeightsTellsNamesTypesShapesAndValuesApart) {
  const std::string base = digest_of_weights("{" + tensor("a", "4", 0, 4) + "}", "abcd");

  EXPECT_NE(digest_of_weights("{" + tensor("b", "4", 0, 4) + "}", "abcd"), base);
  EXPECT_NE(digest_of_weights("{" + tensor("a", "4", 0, 4, "U8") + "}", "abcd"), base);
  EXPECT_NE(digest_of_weights("{" + tensor("a", "2,2", 0, 4) + "}", "abcd"), base);
  EXPECT_NE(digest_of_weights("{" + tensor("a", "4", 0, 4) + "}", "abcx"), base);
  EXPECT_EQ(digest_of_weights("{" + tensor("a", "4", 0, 4) + "}", "abcd"), base);
}

TEST_F(ContentDigestTest, OfAFewFilesIsOfTheirSizesAndBytes) {
  const std::string hello = write("hello", "hello");

  EXPECT_EQ(
      files_digest({hello}),
      "3d4c083fcbeca5fb370ebcaeec1999e3ff3a920e12fdc584bd55bda6718e560c");  // printf '5\0hello' | sha256sum
  EXPECT_NE(files_digest({write("a", "he"), write("b", "llo")}),
            files_digest({write("c", "hel"), write("d", "lo")}));
}

TEST_F(ContentDigestTest, OfALargeFileTellsSizesAndEndsApartWithoutReadingAll) {
  constexpr std::int64_t kSize = std::int64_t{1} << 40;  // sparse; too large to be read whole
  const std::string path = write("large", "");
  const auto digest = [&](std::int64_t size, const std::string& end) {
    fs::resize_file(path, 0);
    fs::resize_file(path, static_cast<std::uintmax_t>(size));
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(size - static_cast<std::int64_t>(end.size()));
    file << end;
    file.close();
    return files_digest({path});
  };

  EXPECT_EQ(digest(kSize, "end"), digest(kSize, "end"));
  EXPECT_NE(digest(kSize, "end"), digest(kSize, "eNd"));
  EXPECT_NE(digest(kSize, ""), digest(kSize + 1, ""));
}

TEST_F(ContentDigestTest, TimesOfChangeAreNotOfCopies) {
  const std::string path = write("a", "12345");
  const std::string before = change_times({path});

  fs::last_write_time(path, fs::last_write_time(path) - std::chrono::hours(1));

  EXPECT_EQ(before.rfind("5@", 0), 0u) << before;
  EXPECT_NE(change_times({path}), before);
}

}  // namespace
}  // namespace headspan
