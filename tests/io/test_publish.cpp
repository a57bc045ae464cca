#include <cerrno>
#include <csignal>
#include <cstring>

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/sha256.h"
#include "common_folder.h"
#include "dist/comm/agreement.h"
#include "io/hdf5/netcdf.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

class PublishTest : public testing::Test {
 protected:
  /// Writes a file whose `values` are rows x 1024 doubles, equal to `version`.
  void write(const std::string& path, std::int64_t rows, double version) const {
    NetcdfFile file = NetcdfFile::create(comm_, path);
    file.define_dimension("row", rows);
    file.define_dimension("column", 1024);
    const std::int64_t first = rows * comm_.rank() / comm_.size(),
                       end = rows * (comm_.rank() + 1) / comm_.size();
    const std::vector<double> values(static_cast<std::size_t>((end - first) * 1024), version);
    file.write("values", {"row", "column"}, values.data(), first, end - first);
    file.close();
  }

  /// Publishes; returns the error, which all ranks share, or an empty text.
  std::string publish_rows(const std::string& path, std::int64_t rows, double version,
                           const std::string& job = "7") const {
    try {
      publish(
          comm_, {path, job, "digest of " + job}, [&](const std::string& to) { write(to, rows, version); },
          [](const std::string&) {});
    } catch (const AgreedError& e) {
      return e.what();
    }
    return "";
  }

  static double version_of(const std::string& path) {
    H5File file = H5File::open(path);
    H5Dataset values = file.open_dataset("values");
    std::vector<double> last(1024);
    values.read_rows(values.shape()[0] - 1, 1, last.data());
    return last.back();
  }

  static std::int64_t entries(const std::string& folder) {
    return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
  }

  Comm comm_ = Comm::duplicate(MPI_COMM_WORLD);
  CommonFolder folder_{comm_, "publish"};
};

TEST_F(PublishTest, LeavesTheFileAndItsDone) {
  const std::string path = folder_.path("model/step10.h5");

  const std::string error = publish_rows(path, 5, 1.5);

  const auto done = read_done(path);
  ASSERT_TRUE(done);
  EXPECT_EQ(error, "");
  EXPECT_EQ(done->size, static_cast<std::int64_t>(fs::file_size(path)));
  EXPECT_EQ(done->sha256, sha256_file(path));
  EXPECT_EQ(done->job_id, "7");
  EXPECT_EQ(done->job_digest, "digest of 7");
  EXPECT_TRUE(is_complete(path));
  EXPECT_EQ(version_of(path), 1.5);
  EXPECT_EQ(entries(folder_.path("model")), 2);
  comm_.barrier();
}

TEST_F(PublishTest, ADoneOfOtherBytesDoesNotCount) {
  const std::string path = folder_.path("result.h5");
  publish_rows(path, 5, 1.5);

  if (comm_.is_root()) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  comm_.barrier();

  EXPECT_TRUE(read_done(path));
  EXPECT_FALSE(is_complete(path));
  EXPECT_FALSE(is_complete(folder_.path("nothing.h5")));
  comm_.barrier();
}

TEST_F(PublishTest, AFailureOnOneRankKeepsTheOldFileAndLeavesNothing) {
  const std::string path = folder_.path("result.h5");
  publish_rows(path, 5, 1.0);

  const int failing = comm_.size() - 1;
  std::string error;
  try {
    publish(
        comm_, {path, "8", ""},
        [&](const std::string& to) {
          write(to, 5, 2.0);
          if (comm_.rank() == failing) throw Error("this rank's part failed");
        },
        [](const std::string&) {});
  } catch (const AgreedError& e) {
    error = e.what();
  }

  EXPECT_EQ(error, "rank " + std::to_string(failing) + ": this rank's part failed");
  EXPECT_EQ(version_of(path), 1.0);
  EXPECT_TRUE(is_complete(path));
  EXPECT_EQ(entries(folder_.path("")), 2);
  comm_.barrier();
}

TEST_F(PublishTest, AFileThatFailsItsCheckIsNotPublished) {
  const std::string path = folder_.path("result.h5");
  const auto write_text = [&](const std::string& to) {
    if (comm_.is_root()) std::ofstream(to) << "no HDF5";
  };
  const auto write_rows = [&](const std::string& to) { write(to, 5, 2.0); };
  const auto accept = [](const std::string&) {};
  const auto refuse = [](const std::string&) { throw Error("a variable is missing"); };

  EXPECT_THROW(publish(comm_, {path, "8", ""}, write_text, accept), AgreedError);
  EXPECT_THROW(publish(comm_, {path, "8", ""}, write_rows, refuse), AgreedError);
  EXPECT_EQ(entries(folder_.path("")), 0);
  comm_.barrier();
}

TEST_F(PublishTest, ARunThatHasLostItsLockPublishesNothingAndLeavesTheOthersFiles) {
  const std::string path = folder_.path("result.h5"), other = path + ".tmp.9";
  publish_rows(path, 5, 1.0);
  const auto lock = comm_.is_root() ? LockFile::take(path, "8", Log(false)) : nullptr;
  const auto lose = [&] {
    if (!comm_.is_root()) return;
    std::ofstream(path + ".lock") << "job_id 9\nsince 2026-01-01T00:00:00Z\nprocess n01 1 2 3 4\n";
    std::ofstream(other) << "of the run that has it now";
  };
  const auto accept = [](const std::string&) {};

  std::string before, meanwhile;
  try {
    publish(
        comm_, {path, "8", "", lock.get()},
        [&](const std::string& to) {
          write(to, 5, 2.0);
          lose();
        },
        accept);
  } catch (const AgreedError& e) {
    meanwhile = e.what();
  }
  try {
    publish(
        comm_, {path, "8", "", lock.get()}, [&](const std::string& to) { write(to, 5, 2.0); }, accept);
  } catch (const AgreedError& e) {
    before = e.what();
  }

  EXPECT_NE(meanwhile.find("has taken over while this run stood still"), std::string::npos) << meanwhile;
  EXPECT_EQ(before, meanwhile);
  EXPECT_EQ(version_of(path), 1.0);
  EXPECT_TRUE(is_complete(path));
  EXPECT_TRUE(fs::exists(other));
  EXPECT_EQ(entries(folder_.path("")), 4);  // the file, its .done, the other's lock and file
  comm_.barrier();
}

TEST_F(PublishTest, LeftoversOfTheSameTargetAreRemoved) {
  const std::string path = folder_.path("a.h5"), other = folder_.path("a.h5.gram.tmp.1");
  if (comm_.is_root())
    for (const std::string& name : {path + ".tmp.1", path + ".done.tmp.2", other}) std::ofstream(name) << "x";
  comm_.barrier();

  publish_rows(path, 5, 1.0);

  EXPECT_FALSE(fs::exists(path + ".tmp.1"));
  EXPECT_FALSE(fs::exists(path + ".done.tmp.2"));
  EXPECT_TRUE(fs::exists(other));
  comm_.barrier();
}

TEST_F(PublishTest, AFullDiskIsToldAndTheOldFileStays) {
  const std::string disk = folder_.path("disk"), path = disk + "/result.h5";
  int mounted = 0;
  if (comm_.is_root()) {
    fs::create_directory(disk);
    mounted = ::mount("headspan_test", disk.c_str(), "tmpfs", 0, "size=4m") == 0 ? 1 : 0;
  }
  comm_.broadcast(&mounted, 1, 0);
  if (mounted == 0) GTEST_SKIP() << "mounting a small tmpfs is not permitted here";

  const std::string first = publish_rows(path, 10, 1.0), second = publish_rows(path, 1001, 2.0);
  const double version = version_of(path);
  const std::int64_t left = entries(disk);
  comm_.barrier();
  if (comm_.is_root()) ::umount(disk.c_str());

  EXPECT_EQ(first, "");
  EXPECT_NE(second.find(path + ".tmp.7: No space left on device"), std::string::npos) << second;
  EXPECT_EQ(version, 1.0);
  EXPECT_EQ(left, 2);
}

TEST_F(PublishTest, AFileSizeLimitIsToldAndTheOldFileStays) {
  const std::string path = folder_.path("result.h5");
  publish_rows(path, 10, 1.0);
  rlimit old{};
  ::getrlimit(RLIMIT_FSIZE, &old);
  const rlimit small{4 << 20, old.rlim_max};
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);

  ::setrlimit(RLIMIT_FSIZE, &small);
  const std::string error = publish_rows(path, 1001, 2.0);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_NE(error.find(path + ".tmp.7: File too large"), std::string::npos) << error;
  EXPECT_EQ(version_of(path), 1.0);
  EXPECT_EQ(entries(folder_.path("")), 2);
  comm_.barrier();
}

TEST_F(PublishTest, AFolderThatCannotBeWrittenIsNamed) {
  const std::string locked = folder_.path("locked"), file = folder_.path("file");
  if (comm_.is_root()) {
    std::ofstream(file) << "x";
    fs::create_directory(locked);
    ::chmod(folder_.path("").c_str(), 0755);
    ::chmod(locked.c_str(), 0500);
  }
  comm_.barrier();
  const bool super_user = ::geteuid() == 0;
  ASSERT_EQ(::seteuid(super_user ? 65534 : ::geteuid()), 0);

  const std::string in_locked = publish_rows(locked + "/sub/a.h5", 5, 1.0),
                    at_locked = publish_rows(locked + "/a.h5", 5, 1.0);
  const std::string in_file = publish_rows(file + "/a.h5", 5, 1.0);
  ASSERT_EQ(::seteuid(super_user ? 0 : ::geteuid()), 0);

  EXPECT_EQ(in_locked, "rank 0: cannot make the folder: " + locked + "/sub: Permission denied");
  EXPECT_EQ(at_locked, "rank 0: cannot write to the folder: " + locked + ": Permission denied");
  EXPECT_EQ(in_file, "rank 0: cannot make the folder: " + file + ": Not a directory");
  comm_.barrier();
}

}  // namespace
}  // namespace headspan
