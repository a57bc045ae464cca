#include "base/process/cgroup.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include <sys/stat.h>

namespace headspan {
namespace {

namespace fs = std::filesystem;

/// Where a hierarchy of control groups is mounted, and the group that is the root of the mount.
struct Mount {
  fs::path folder;
  fs::path group;
};

bool contains_word(const std::string& list, const std::string& word) {
  return ("," + list + ",").find("," + word + ",") != std::string::npos;
}

/// Finds the mount of version 1's hierarchy of `controller`, or of version 2's if `controller` is empty.
std::optional<Mount> find_mount(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    // id parent device GROUP FOLDER options [tags..] - TYPE source OPTIONS
    std::istringstream words(line);
    std::string skipped, group, folder, type, options;
    words >> skipped >> skipped >> skipped >> group >> folder;
    while (words >> skipped && skipped != "-") continue;
    words >> type >> skipped >> options;
    if (controller.empty() ? type == "cgroup2" : type == "cgroup" && contains_word(options, controller))
      return Mount{root + folder, group};
  }
  return {};
}

/// Returns the process's group in that hierarchy; empty if it is in none.
fs::path find_group(const std::string& root, const std::string& controller) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);  // id:controllers:group
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controller.empty() ? controllers.empty() : contains_word(controllers, controller))
      return line.substr(second + 1);
  }
  return {};
}

/// Returns the folders of the process's group and of its mounted ancestors, from the group upwards.
std::vector<fs::path> group_folders(const std::string& root, const std::string& controller) {
  const auto mount = find_mount(root, controller);
  const fs::path group = find_group(root, controller);
  if (!mount || group.empty()) return {};
  fs::path inside = group.lexically_relative(mount->group);
  if (inside.empty() || *inside.begin() == "..")
    inside = ".";  // in a container: the mount's root is the process's group
  std::vector<fs::path> folders;
  for (; inside != "."; inside = inside.has_parent_path() ? inside.parent_path() : ".")
    folders.push_back(mount->folder / inside);
  folders.push_back(mount->folder);
  return folders;
}

void add(std::vector<GroupLimit>& limits, const fs::path& folder, double amount) {
  struct stat status {};
  if (amount > 0 && ::stat(folder.c_str(), &status) == 0) limits.push_back({status.st_ino, amount});
}

/// Reads the number at the start of a file of the group; returns 0 if there is none, as in "max".
double number_in(const fs::path& file) {
  double number = 0;
  std::ifstream(file) >> number;
  return number;
}

void add_quota(std::vector<GroupLimit>& limits, const fs::path& folder) {
  double quota = 0, period = 0;
  if (std::ifstream(folder / "cpu.max") >> quota >> period && period > 0) add(limits, folder, quota / period);
}

}  // namespace

GroupLimits cgroup_limits(const std::string& root) {
  GroupLimits limits;
  for (const fs::path& folder : group_folders(root, "")) {
    add(limits.memory, folder, number_in(folder / "memory.max"));
    add(limits.memory, folder, number_in(folder / "memory.high"));
    add_quota(limits.cores, folder);
  }
  for (const fs::path& folder : group_folders(root, "memory"))
    add(limits.memory, folder, number_in(folder / "memory.limit_in_bytes"));
  for (const fs::path& folder : group_folders(root, "cpu"))
    if (const double period = number_in(folder / "cpu.cfs_period_us"); period > 0)
      add(limits.cores, folder, number_in(folder / "cpu.cfs_quota_us") / period);
  return limits;
}

}  // namespace headspan
