#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/process/cgroup.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

/// A root folder with the given files.
class FakeRoot : public ::testing::Test {
 protected:
  FakeRoot() { fs::create_directory(root_); }
  ~FakeRoot() override { fs::remove_all(root_); }

  void write(const std::map<std::string, std::string>& files) const {
    for (const auto& [path, text] : files) {
      fs::create_directories(fs::path(root_ + path).parent_path());
      std::ofstream(root_ + path) << text << "\n";
    }
  }

  std::uint64_t inode(const std::string& folder) const {
    struct stat status {};
    EXPECT_EQ(::stat((root_ + folder).c_str(), &status), 0) << folder;
    return status.st_ino;
  }

  /// Limits as {folder: amount}.
  void expect(const std::vector<GroupLimit>& found,
              const std::vector<std::pair<std::string, double>>& expected) const {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].amount, expected[i].second) << i;
      EXPECT_EQ(found[i].group, inode(expected[i].first)) << i;
    }
  }

  const std::string root_ = fs::temp_directory_path() / ("headspan_cgroup." + std::to_string(::getpid()));
};

constexpr const char* kVersion2 =
    "22 1 0:20 / / rw - ext4 /dev/sda rw\n"
    "30 22 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

TEST_F(FakeRoot, VersionTwoWithAJobAndAStep) {
  const std::string groups = "/sys/fs/cgroup", job = groups + "/system.slice/job_7", step = job + "/step_0";
  write({{"/proc/self/mountinfo", kVersion2},
         {"/proc/self/cgroup", "0::/system.slice/job_7/step_0"},
         {step + "/memory.max", "max"},
         {step + "/memory.high", "3000000000"},
         {step + "/cpu.max", "150000 100000"},
         {job + "/memory.max", "4294967296"},
         {job + "/memory.high", "max"},
         {job + "/cpu.max", "max 100000"},
         {groups + "/system.slice/memory.max", "max"},
         {groups + "/system.slice/cpu.max", "3200000 100000"}});

  const GroupLimits limits = cgroup_limits(root_);

  expect(limits.memory, {{step, 3e9}, {job, 4294967296.0}});
  expect(limits.cores, {{step, 1.5}, {groups + "/system.slice", 32}});
}

TEST_F(FakeRoot, VersionTwoInAContainerWithItsOwnNamespace) {
  write({{"/proc/self/mountinfo", kVersion2},
         {"/proc/self/cgroup", "0::/"},
         {"/sys/fs/cgroup/memory.max", "2147483648"},
         {"/sys/fs/cgroup/cpu.max", "50000 100000"}});

  const GroupLimits limits = cgroup_limits(root_);

  expect(limits.memory, {{"/sys/fs/cgroup", 2147483648.0}});
  expect(limits.cores, {{"/sys/fs/cgroup", 0.5}});
}

TEST_F(FakeRoot, AGroupOutsideTheMount) {
  write({{"/proc/self/mountinfo", kVersion2},
         {"/proc/self/cgroup", "0::/../other"},
         {"/sys/fs/cgroup/memory.max", "1000000000"}});

  expect(cgroup_limits(root_).memory, {{"/sys/fs/cgroup", 1e9}});
}

TEST_F(FakeRoot, VersionOneWithControllersMountedApart) {
  const std::string memory = "/sys/fs/cgroup/memory", cpu = "/sys/fs/cgroup/cpu,cpuacct";
  write({{"/proc/self/mountinfo",
          "31 22 0:27 / /sys/fs/cgroup ro - tmpfs tmpfs ro,mode=755\n"
          "32 31 0:28 / " +
              cpu +
              " rw shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct\n"
              "33 31 0:29 / " +
              memory +
              " rw - cgroup cgroup rw,memory\n"
              "34 31 0:30 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw"},
         {"/proc/self/cgroup",
          "9:memory:/slurm/uid_0/job_7/step_0\n4:cpu,cpuacct:/slurm/uid_0\n0::/init.scope"},
         {memory + "/slurm/uid_0/job_7/step_0/memory.limit_in_bytes", "9223372036854771712"},
         {memory + "/slurm/uid_0/job_7/memory.limit_in_bytes", "8000000000"},
         {memory + "/memory.limit_in_bytes", "9223372036854771712"},
         {cpu + "/slurm/uid_0/cpu.cfs_quota_us", "-1"},
         {cpu + "/slurm/uid_0/cpu.cfs_period_us", "100000"},
         {cpu + "/slurm/cpu.cfs_quota_us", "400000"},
         {cpu + "/slurm/cpu.cfs_period_us", "50000"}});

  const GroupLimits limits = cgroup_limits(root_);

  expect(limits.memory, {{memory + "/slurm/uid_0/job_7/step_0", 9223372036854771712.0},
                         {memory + "/slurm/uid_0/job_7", 8e9},
                         {memory, 9223372036854771712.0}});
  expect(limits.cores, {{cpu + "/slurm", 8}});
}

TEST_F(FakeRoot, VersionOneInAContainerThatMountsItsGroupOnly) {
  const std::string memory = "/sys/fs/cgroup/memory";
  write({{"/proc/self/mountinfo", "33 31 0:29 /docker/ab12 " + memory + " ro - cgroup cgroup rw,memory"},
         {"/proc/self/cgroup", "9:memory:/docker/ab12/inner\n"},
         {memory + "/memory.limit_in_bytes", "5000000000"},
         {memory + "/inner/memory.limit_in_bytes", "1000000000"}});

  expect(cgroup_limits(root_).memory, {{memory + "/inner", 1e9}, {memory, 5e9}});
}

TEST_F(FakeRoot, WithoutControlGroupsOrWithTornFilesThereIsNoLimit) {
  for (const char* mounts : {"", "31 22", kVersion2})
    for (const char* groups : {"", "nonsense", "0:", "0::", "0::/gone"}) {
      write(
          {{"/proc/self/mountinfo", mounts}, {"/proc/self/cgroup", groups}, {"/sys/fs/cgroup/cpu.max", "5"}});
      const GroupLimits limits = cgroup_limits(root_);
      EXPECT_TRUE(limits.memory.empty() && limits.cores.empty()) << mounts << " | " << groups;
    }
}

/// A child of this process's group, which the process enters and, at the end, leaves.
class OwnGroup {
 public:
  explicit OwnGroup(const std::string& controller)
      : above_("/sys/fs/cgroup/" + controller + own_path(controller)),
        folder_(above_ + "/headspan_test." + std::to_string(::getpid())) {
    is_there_ = ::mkdir(folder_.c_str(), 0777) == 0;
  }
  ~OwnGroup() {
    if (!is_there_) return;
    write(above_, "cgroup.procs", ::getpid());
    ::rmdir(folder_.c_str());
  }
  OwnGroup(const OwnGroup&) = delete;
  OwnGroup& operator=(const OwnGroup&) = delete;

  /// Sets the limit and enters the group; returns false if this user may not.
  bool enter(const std::string& file, std::int64_t limit) const {
    return is_there_ && write(folder_, file, limit) && write(folder_, "cgroup.procs", ::getpid());
  }

 private:
  static std::string own_path(const std::string& controller) {
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);)
      if (const auto at = line.find(":" + controller + ":"); at != std::string::npos)
        return line.substr(at + controller.size() + 2);
    return "/none";
  }
  static bool write(const std::string& folder, const std::string& file, std::int64_t value) {
    std::ofstream out(folder + "/" + file);
    out << value << std::flush;
    return static_cast<bool>(out);
  }

  std::string above_, folder_;
  bool is_there_ = false;
};

bool holds(const std::vector<GroupLimit>& limits, double amount) {
  for (const GroupLimit& limit : limits)
    if (limit.amount == amount) return true;
  return false;
}

TEST(Cgroup, LimitsOfThisSystemAreFound) {
  const OwnGroup memory("memory"), cpu("cpu");
  const bool limited_memory = memory.enter("memory.limit_in_bytes", std::int64_t{3} << 30);
  const bool limited_cpu = cpu.enter("cpu.cfs_quota_us", 170000);  // of a period of 100 000
  if (!limited_memory && !limited_cpu) GTEST_SKIP() << "this user cannot make a control group of version 1";

  const GroupLimits limits = cgroup_limits();

  EXPECT_TRUE(!limited_memory || holds(limits.memory, 3.0 * (1 << 30)));
  EXPECT_TRUE(!limited_cpu || holds(limits.cores, 1.7));
}

}  // namespace
}  // namespace headspan
