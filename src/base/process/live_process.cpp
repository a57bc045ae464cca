#include "base/process/live_process.h"

#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <unistd.h>

#include "base/provenance.h"

namespace headspan {
namespace {

/// Returns the start time of a process in clock ticks after boot; empty if /proc does not show it, "ended"
/// for a zombie.
std::string start_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');  // the name may hold blanks and brackets
  if (name_end == std::string::npos) return {};
  std::istringstream fields(text.substr(name_end + 1));
  std::string state, field;
  fields >> state;
  for (int number = 4; number <= 22; ++number) fields >> field;
  return state == "Z" || state == "X" ? "ended" : field;
}

/// Returns what a process id is unique within: the boot id of the machine and the PID namespace.
std::string id_space() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  file >> boot;
  std::error_code missing;
  return boot + " " + std::filesystem::read_symlink("/proc/self/ns/pid", missing).string();
}

}  // namespace

std::string this_process() {
  return hostname() + " " + std::to_string(::getpid()) + " " + start_of(::getpid()) + " " + id_space();
}

Life life_of(const std::string& process) {
  std::istringstream fields(process);
  std::string host, start, boot, space;
  pid_t pid = 0;
  if (!(fields >> host >> pid >> start >> boot >> space) || pid < 1 || boot + " " + space != id_space())
    return Life::unknown;
  if (::kill(pid, 0) != 0 && errno == ESRCH) return Life::dead;
  const std::string now = start_of(pid);
  return now.empty() ? Life::unknown : now == start ? Life::alive : Life::dead;
}

}  // namespace headspan
