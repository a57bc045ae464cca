#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/input_file.h"

namespace headspan {
namespace {

class InputFileTest : public testing::Test {
 protected:
  void SetUp() override { std::ofstream(path_) << "0123456789"; }
  void TearDown() override { std::filesystem::remove(path_); }

  const std::string path_ = testing::TempDir() + "headspan_input_file_" + std::to_string(getpid());
};

std::string refusal(const std::string& path) {
  try {
    const InputFile file(path);
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_F(InputFileTest, ReadsAnyRangeAndCountsIt) {
  const InputFile file(path_);
  std::string middle(3, '?');

  file.read(4, 3, middle.data());
  file.read(10, 0, nullptr);

  EXPECT_EQ(file.size(), 10);
  EXPECT_EQ(middle, "456");
  EXPECT_EQ(file.bytes_read(), 3);
}

TEST_F(InputFileTest, MovesWithItsCount) {
  InputFile first(path_);
  char byte = '?';
  first.read(0, 1, &byte);

  InputFile second(std::move(first));
  second.read(9, 1, &byte);

  EXPECT_EQ(byte, '9');
  EXPECT_EQ(second.bytes_read(), 2);
}

TEST_F(InputFileTest, ReportsThatTheFileBecameShorter) {
  const InputFile file(path_);
  std::filesystem::resize_file(path_, 6);
  std::string bytes(10, '?');

  try {
    file.read(0, 10, bytes.data());
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.what(),
              "cannot read: " + path_ +
                  ": it ends at byte 6 but had 10 bytes when it was opened: something shortened it");
  }
}

TEST_F(InputFileTest, RefusesWhatIsNotAReadableFile) {
  const std::string fifo = path_ + ".fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);

  const std::string fifo_refusal = refusal(fifo);

  std::filesystem::remove(fifo);
  EXPECT_EQ(fifo_refusal, fifo + ": is not a regular file; give the path of a file");
  EXPECT_EQ(refusal("/"), "/: is a folder; give the path of a file");
  EXPECT_EQ(refusal(path_ + "/x"),
            path_ + "/x: cannot be opened: Not a directory; give the path of a readable file");
}

TEST_F(InputFileTest, ReadsASmallFileAsAWhole) { EXPECT_EQ(read_small_file(path_), "0123456789"); }

TEST_F(InputFileTest, ReadsASmallFileWithoutItsByteOrderMark) {
  std::ofstream(path_) << "\xEF\xBB\xBF[model]\n";

  EXPECT_EQ(read_small_file(path_), "[model]\n");
  EXPECT_EQ(read_whole_file(path_).size(), 11u);
}

TEST_F(InputFileTest, RefusesASmallFileThatIsLarge) {
  std::filesystem::resize_file(path_, 100'000'001);  // sparse: takes no room

  EXPECT_THROW(read_small_file(path_), InputError);
}

}  // namespace
}  // namespace headspan
