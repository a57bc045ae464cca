#include "base/provenance.h"

#include <array>
#include <cctype>
#include <cstdlib>
#include <ctime>

#include <unistd.h>

#include "git_id.h"

namespace headspan {
namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

/// Cuts `text`, and replaces every character but letters, digits, '.', '-' and '_' by '_'.
std::string for_file_name(const std::string& text, std::size_t length) {
  std::string name = text.substr(0, length);
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '.' && c != '-') c = '_';
  return name;
}

}  // namespace

std::string program_version() { return HEADSPAN_VERSION; }

std::string git_id() { return HEADSPAN_GIT_ID; }

std::string program_name() { return "headspan " + program_version() + " (git " + git_id() + ")"; }

std::string compiler() {
#ifdef __clang__
  const std::string name = __VERSION__;  // "Clang 14.0.6" or "Debian Clang 14.0.6"
#else
  const std::string name = std::string("GCC ") + __VERSION__;
#endif
  return name + " " + HEADSPAN_BUILD_TYPE;
}

std::string iso_time_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

std::string hostname() {
  std::array<char, 256> name{};
  if (gethostname(name.data(), name.size() - 1) != 0) return "localhost";
  return name.data();
}

std::string job_id() {
  const std::string array = environment("SLURM_ARRAY_JOB_ID"), task = environment("SLURM_ARRAY_TASK_ID");
  const std::string job = environment("SLURM_JOB_ID"), pid = std::to_string(getpid());
  if (!array.empty() && !task.empty()) return for_file_name(array + "_" + task, kMaxJobIdLength);
  if (!job.empty()) return for_file_name(job, kMaxJobIdLength);
  return for_file_name(hostname(), kMaxJobIdLength - 1 - pid.size()) + "-" + pid;
}

}  // namespace headspan
