#include "app/run/input_watch.h"

#include <algorithm>

#include <sys/stat.h>

#include "app/run/write_target.h"
#include "base/error.h"
#include "base/printable.h"

namespace headspan {
namespace {

/// Returns what tells a file from another of its name; "" if there is none.
std::string state_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return "";
  return std::to_string(status.st_ino) + " " + std::to_string(status.st_size) + " " +
         std::to_string(status.st_mtim.tv_sec) + "." + std::to_string(status.st_mtim.tv_nsec);
}

/// Returns the files that the job reads while it runs.
std::vector<std::string> read_while_running(const Job& job) {
  std::vector<std::string> files = input_files(job);
  const auto is_read_before = [&](const std::string& path) {
    return path == job.file || path == job.model.manifest;
  };
  files.erase(std::remove_if(files.begin(), files.end(), is_read_before), files.end());
  return files;
}

}  // namespace

InputWatch::InputWatch(const std::vector<std::string>& files) { add(files); }

InputWatch::InputWatch(const Job& job) : InputWatch(read_while_running(job)) {}

void InputWatch::add(const std::vector<std::string>& files) {
  for (const std::string& path : files)
    if (const std::string state = state_of(path); !state.empty()) states_.emplace(path, state);
}

void InputWatch::check() const {
  for (const auto& [path, state] : states_)
    if (state_of(path) != state)
      throw Error(printable(path) +
                  ": was changed while it was read: nothing is written from a mixture of two inputs; "
                  "run again");
}

}  // namespace headspan
