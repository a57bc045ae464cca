// Handwritten checkpoint folders, good and bad.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "io/checkpoint/checkpoint.h"
#include "safetensors_samples.h"

namespace headspan {
namespace fs = std::filesystem;
namespace {

/// Returns a file with an I8 tensor of `bytes` bytes, each `value`.
std::string one_tensor(const std::string& name, int bytes, char value) {
  const std::string size = std::to_string(bytes);
  const std::string header =
      "{\"" + name + "\":{\"dtype\":\"I8\",\"shape\":[" + size + "],\"data_offsets\":[0," + size + "]}}";
  return safetensors_file(header, 0) + std::string(static_cast<std::size_t>(bytes), value);
}

class CheckpointTest : public testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_);
    write("config.json", "{}");
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << text;
  }

  void write_index(const std::string& text) { write("model.safetensors.index.json", text); }

  /// Tensor "a" (5 bytes) in the first shard and "b" (7 bytes) in the second.
  void write_shards() {
    write("model-00001-of-00002.safetensors", one_tensor("a", 5, 'A'));
    write("model-00002-of-00002.safetensors", one_tensor("b", 7, 'B'));
    write_index(R"({"metadata":{"total_size":12},"weight_map":{"b":"model-00002-of-00002.safetensors",
                    "a":"model-00001-of-00002.safetensors"}})");
  }

  std::string refusal(const std::string& folder) const {
    try {
      Checkpoint::open(folder);
    } catch (const InputError& error) {
      return error.what();
    }
    return "nothing was thrown";
  }

  void expect_refusal(const std::string& where, const std::string& wrong) const {
    const std::string line = refusal(folder_);
    EXPECT_EQ(line.rfind(where + ": ", 0), 0u) << line;
    EXPECT_NE(line.find(wrong), std::string::npos) << line;
  }

  const std::string folder_ = testing::TempDir() + "headspan_checkpoint_" + std::to_string(getpid());
  const std::string index_ = folder_ + "/model.safetensors.index.json";
};

TEST_F(CheckpointTest, ReadsASingleFile) {
  write("model.safetensors", one_tensor("a", 5, 'A'));

  const auto checkpoint = Checkpoint::open(folder_);

  EXPECT_EQ(checkpoint.folder(), folder_);
  EXPECT_EQ(config_of(folder_), folder_ + "/config.json");
  EXPECT_EQ(checkpoint.names(), std::vector<std::string>{"a"});
  EXPECT_TRUE(checkpoint.has("a"));
  EXPECT_FALSE(checkpoint.has("b"));
  EXPECT_EQ(checkpoint.entry("a").shape, std::vector<std::int64_t>{5});
  EXPECT_EQ(checkpoint.file_of("a"), folder_ + "/model.safetensors");
}

TEST_F(CheckpointTest, ReadsEveryByteOfShardsOnce) {
  write_shards();
  const auto checkpoint = Checkpoint::open(folder_);
  std::string a(5, '?'), b(7, '?');

  checkpoint.read("a", 0, 5, a.data());
  checkpoint.read("b", 0, 3, b.data());
  checkpoint.read("b", 3, 4, b.data() + 3);

  EXPECT_EQ(a, "AAAAA");
  EXPECT_EQ(b, "BBBBBBB");
  EXPECT_EQ(checkpoint.bytes_read(), 12);
  EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(checkpoint.warnings().empty());
}

TEST_F(CheckpointTest, FollowsTheLinksOfTheHuggingFaceCache) {
  fs::create_directories(folder_ + "/blobs");
  write("blobs/0123", one_tensor("a", 5, 'A'));
  fs::create_symlink("blobs/0123", folder_ + "/model.safetensors");

  EXPECT_TRUE(Checkpoint::open(folder_).has("a"));
}

TEST_F(CheckpointTest, PrefersTheSingleFileAsTransformersDoes) {
  write_shards();
  write("model.safetensors", one_tensor("c", 1, 'C'));

  EXPECT_EQ(Checkpoint::open(folder_).names(), std::vector<std::string>{"c"});
}

TEST_F(CheckpointTest, NamesATensorThatIsMissing) {
  write("model.safetensors", one_tensor("a", 5, 'A'));
  const auto checkpoint = Checkpoint::open(folder_);

  try {
    checkpoint.entry("model.norm.weight");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.what(),
              folder_ +
                  ": tensor 'model.norm.weight': is missing from the weights; do config.json and the "
                  "weights belong together?");
  }
}

TEST_F(CheckpointTest, RefusesAFolderWithoutItsFiles) {
  expect_refusal(folder_, "holds neither model.safetensors nor model.safetensors.index.json");
  fs::remove(folder_ + "/config.json");
  expect_refusal(folder_,
                 "holds no config.json; a folder with config.json and model.safetensors is expected");
  fs::create_directories(folder_ + "/snapshots");
  expect_refusal(folder_, "holds no config.json; give one of the folders in its snapshots/");
  fs::remove_all(folder_);
  expect_refusal(folder_, "does not exist");
}

TEST_F(CheckpointTest, NamesTheScriptThatFetchesAFolderThatIsMissing) {
  const std::string missing = folder_ + "/model";
  EXPECT_EQ(refusal(missing),
            missing + ": does not exist; a folder with config.json and model.safetensors is expected");
  write("fetch.sh", "");
  for (const std::string& name : {missing, missing + "/"})
    EXPECT_EQ(refusal(name), name + ": does not exist; fetch it: bash " + folder_ + "/fetch.sh");
}

TEST_F(CheckpointTest, NamesTheManifestThatTellsWhereAFolderIsFetchedFrom) {
  const std::string missing = folder_ + "/step150", manifest = folder_ + "/manifest.tsv";
  const std::string fetch = "; fetch it: python3 checkpoints/fetch.py " + manifest + " step150";
  write("manifest.tsv", "name\tstep\ttokens\tpath\nstep150\t150\t\tstep150\n");
  EXPECT_EQ(refusal(missing).find("fetch"), std::string::npos);
  write("manifest.tsv", "name\tstep\ttokens\tpath\trepository\r\nstep150\t150\t\tstep150\torg/name\r\n");

  EXPECT_EQ(refusal(missing), missing + ": does not exist" + fetch);
  fs::create_directories(missing);
  EXPECT_EQ(refusal(missing), missing + ": holds no config.json" + fetch);
  write("step150/config.json", "{}");
  EXPECT_EQ(refusal(missing),
            missing + ": holds neither model.safetensors nor model.safetensors.index.json" + fetch);
}

TEST_F(CheckpointTest, SaysWhatToDoAboutAConfigWithoutWeights) {
  const std::string none = folder_ + ": holds neither model.safetensors nor model.safetensors.index.json; ";

  EXPECT_EQ(refusal(folder_), none + "download the checkpoint into it, hf download REPOSITORY --local-dir " +
                                  folder_ + ", or study random weights, model.init = random");
  write("tf_model.h5", "");
  EXPECT_EQ(refusal(folder_), none + "weights are read in the safetensors format only");
  write("pytorch_model.bin", "");
  EXPECT_EQ(refusal(folder_), none + "convert them: python3 checkpoints/convert.py " + folder_);
}

TEST_F(CheckpointTest, HasAConfigBeforeItHasWeights) {
  EXPECT_EQ(config_of(folder_), folder_ + "/config.json");
  write("fetch.sh", "");
  try {
    config_of(folder_ + "/model");
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_EQ(error.what(), folder_ + "/model: does not exist; fetch it: bash " + folder_ + "/fetch.sh");
  }
}

TEST_F(CheckpointTest, RefusesAFileInPlaceOfTheFolder) {
  EXPECT_THROW(Checkpoint::open(folder_ + "/config.json"), InputError);
}

TEST_F(CheckpointTest, RefusesUnfinishedDownloads) {
  write("model.safetensors", one_tensor("a", 5, 'A'));
  write("model-00002.safetensors.incomplete", "");
  expect_refusal(folder_ + "/model-00002.safetensors.incomplete", "unfinished download");
  fs::remove(folder_ + "/model-00002.safetensors.incomplete");

  fs::remove(folder_ + "/model.safetensors");
  fs::create_symlink("blobs/0123.incomplete", folder_ + "/model.safetensors");
  expect_refusal(folder_ + "/model.safetensors", "unfinished download");

  fs::remove(folder_ + "/model.safetensors");
  fs::create_symlink("blobs/0123", folder_ + "/model.safetensors");
  expect_refusal(folder_ + "/model.safetensors", "links to a file that is missing: blobs/0123");
}

TEST_F(CheckpointTest, NamesAShardThatIsMissing) {
  write_shards();
  fs::remove(folder_ + "/model-00002-of-00002.safetensors");

  expect_refusal(index_, "weight_map 'b' = model-00002-of-00002.safetensors: is missing from the folder");
}

TEST_F(CheckpointTest, NamesAShardThatIsDamaged) {
  write_shards();
  const std::string shard = folder_ + "/model-00002-of-00002.safetensors";
  fs::resize_file(shard, fs::file_size(shard) - 1);

  expect_refusal(shard, "reach beyond the data");
}

TEST_F(CheckpointTest, NamesATensorThatItsShardDoesNotHold) {
  write_shards();
  write_index(R"({"weight_map":{"b":"model-00001-of-00002.safetensors"}})");

  expect_refusal(index_, "weight_map 'b' = model-00001-of-00002.safetensors: does not hold this tensor");
}

TEST_F(CheckpointTest, WarnsOfTensorsElsewhereAndOfAnotherTotal) {
  write_shards();
  write_index(R"({"metadata":{"total_size":11},"weight_map":{"a":"model-00001-of-00002.safetensors",
                  "b":"model-00002-of-00002.safetensors"}})");
  EXPECT_EQ(Checkpoint::open(folder_).warnings(),
            std::vector<std::string>{index_ + ": metadata.total_size = 11: the tensors have 12 bytes"});

  write("model-00001-of-00002.safetensors",
        safetensors_file(R"({"a":{"dtype":"I8","shape":[5],"data_offsets":[0,5]},
                             "b":{"dtype":"I8","shape":[7],"data_offsets":[5,12]}})",
                         12));
  write_index(
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors"}})");
  EXPECT_EQ(Checkpoint::open(folder_).warnings(),
            std::vector<std::string>{
                folder_ + "/model-00001-of-00002.safetensors: tensor 'b' is not used: the index does "
                          "not place it here"});
}

TEST_F(CheckpointTest, RefusesABrokenIndex) {
  const std::pair<std::string, const char*> samples[] = {
      {"", "is not valid JSON"},
      {"{", "is not valid JSON"},
      {"[]", "weight_map: is missing"},
      {"{}", "weight_map: is missing"},
      {R"({"weight_map":{}})", "weight_map: is missing, empty"},
      {R"({"weight_map":["a"]})", "weight_map: is missing, empty or no object"},
      {R"({"weight_map":{"a":1}})", "weight_map 'a' = 1: is not a file name in this folder"},
      {R"({"weight_map":{"a":""}})", "is not a file name in this folder"},
      {R"({"weight_map":{"a":"."}})", "is not a file name in this folder"},
      {R"({"weight_map":{"a":".."}})", "is not a file name in this folder"},
      {R"({"weight_map":{"a":"../model.safetensors"}})", "is not a file name in this folder"},
      {R"({"weight_map":{"a":"/etc/passwd"}})", "is not a file name in this folder"},
      {R"({"weight_map":{"a":"shards/1.safetensors"}})", "is not a file name in this folder"},
      {R"({"weight_map":{"a":"..\\model.safetensors"}})", "is not a file name in this folder"},
      {R"({"weight_map":{"a":"a\u0000b"}})", "is not a file name in this folder"},
      {R"({"weight_map":{"a":"x","a":"y"}})", "a: is given twice"},
      {R"({"weight_map":{"a":"x"},"weight_map":{"a":"x"}})", "weight_map: is given twice"},
      {R"({"x":)" + std::string(200000, '[') + std::string(200000, ']') + R"(,"weight_map":{"a":"x"}})",
       "nests deeper than 32"},
  };
  for (const auto& [text, wrong] : samples) {
    write_index(text);

    expect_refusal(index_, wrong);
  }
}

TEST_F(CheckpointTest, TakesAnIndexWithOddMetadata) {
  write_shards();
  for (const char* metadata :
       {"null", "[]", "\"x\"", "{}", "{\"total_size\":\"12\"}", "{\"total_size\":12.0}"}) {
    write_index(std::string("{\"metadata\":") + metadata +
                R"(,"weight_map":{"a":"model-00001-of-00002.safetensors"}})");

    EXPECT_EQ(Checkpoint::open(folder_).names(), std::vector<std::string>{"a"}) << metadata;
  }
}

}  // namespace
}  // namespace headspan
