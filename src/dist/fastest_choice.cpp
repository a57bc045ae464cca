#include "dist/fastest_choice.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <omp.h>
#include <time.h>
#include <unistd.h>

#include "base/output_file.h"
#include "base/provenance.h"
#include "base/sha256.h"
#include "dist/threads.h"

namespace headspan {
namespace {

constexpr double kFasterBy = 1.1;  // than the usual choice

double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Returns the name of this kind of processor, as Linux gives it.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.compare(0, 10, "model name") == 0) return line;
  return "";
}

/// Returns the file that keeps the choice for this processor; "" if there is no folder.
std::string file_of(const Choice& choice) {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::string folder;
  if (cache != nullptr && cache[0] == '/')
    folder = cache;
  else if (home != nullptr && home[0] == '/')
    folder = std::string(home) + "/.cache";
  else
    return "";
  return folder + "/headspan/" + choice.subject + "-" +
         sha256_hex(processor_name() + "\n" + choice.versions).substr(0, 16);
}

/// Returns what the file says; "" unless it is a candidate.
std::string read_choice(const std::string& path, const std::vector<std::string>& candidates) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return std::find(candidates.begin(), candidates.end(), word) != candidates.end() ? word : "";
}

/// Keeps `chosen`, unless another process has kept a choice meanwhile. Returns the one that is kept. The file
/// is written beside its name, so that other processes read all of it or nothing.
std::string keep(const std::string& path, const std::string& chosen,
                 const std::vector<std::string>& candidates) {
  const std::string temporary = path + "." + hostname() + "." + std::to_string(getpid());
  std::string kept;
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    OutputFile(temporary).append(chosen + "\n");
    const bool is_first = link(temporary.c_str(), path.c_str()) == 0;
    if (!is_first) kept = read_choice(path, candidates);
    if (is_first || !kept.empty())
      std::filesystem::remove(temporary);
    else
      std::filesystem::rename(temporary, path);  // over a file without sense, or where links are unknown
  } catch (const std::exception&) {              // the next process measures again
  }
  return kept.empty() ? chosen : kept;
}

}  // namespace

std::string fastest(const std::string& usual, const std::map<std::string, double>& speeds) {
  std::string best = usual;
  const auto own = speeds.find(usual);
  double to_beat = own != speeds.end() ? kFasterBy * own->second : 0;
  for (const auto& [candidate, speed] : speeds)
    if (speed > to_beat) {
      best = candidate;
      to_beat = speed;
    }
  return best;
}

std::string kept_choice(const Choice& choice, const std::function<std::string()>& measure) {
  const std::string path = file_of(choice);
  if (std::string kept = read_choice(path, choice.candidates); !kept.empty()) return kept;
  const std::string chosen = measure();
  return chosen.empty() || path.empty() ? chosen : keep(path, chosen, choice.candidates);
}

std::vector<double> least_seconds(const std::vector<std::function<void()>>& ways) {
  constexpr int kTurns = 12;
  const SingleThreadedBlas single;
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  std::vector<double> least(ways.size(), 0.0);
  for (int turn = 0; turn < kTurns; ++turn)
    for (std::size_t i = 0; i < ways.size(); ++i) {
      const double start = thread_seconds();
      ways[i]();
      const double seconds = thread_seconds() - start;
      if (turn == 1 || (turn > 1 && seconds < least[i])) least[i] = seconds;
    }
  omp_set_num_threads(threads);
  return least;
}

}  // namespace headspan
