#include "dist/blas_core.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/output_file.h"
#include "base/process/process_setup.h"
#include "base/sha256.h"
#include "dist/matrix/scalapack.h"
#include "dist/threads.h"

// Functions of OpenBLAS; null with any other BLAS.
extern "C" {
__attribute__((weak)) char* openblas_get_corename();
__attribute__((weak)) char* openblas_get_config();
}

namespace headspan {
namespace {

constexpr const char* kVariable = "OPENBLAS_CORETYPE";
constexpr const char* kSpeedOption = "--blas-speed";
constexpr double kFasterBy = 1.1;        // than the loaded core; less could be noise
constexpr int kLongestMeasurement = 10;  // seconds; the program starts in one

/// Returns the cores of OpenBLAS that this processor could run, apart from very old ones.
std::vector<std::string> possible_cores() {
  std::vector<std::string> cores;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) cores = {"Haswell", "Zen"};
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl"))
    cores.insert(cores.end(), {"SkylakeX", "Cooperlake", "SapphireRapids"});
#endif
  return cores;
}

bool is_openblas() { return openblas_get_corename != nullptr && openblas_get_config != nullptr; }

/// Returns the processor time of this thread, which other processes on its core do not add to.
double thread_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Returns the least seconds of five products, after one that warms up.
template <class T, class Gemm>
double seconds_of_product(int size, const Gemm& gemm) {
  const std::vector<T> x(static_cast<std::size_t>(size) * static_cast<std::size_t>(size), T(1));
  std::vector<T> y(x.size());
  const T one = 1, zero = 0;
  double least = 0;
  for (int repeat = 0; repeat < 6; ++repeat) {
    const double start = thread_seconds();
    gemm("N", "T", &size, &size, &size, &one, x.data(), &size, x.data(), &size, &zero, y.data(), &size);
    const double seconds = thread_seconds() - start;
    if (repeat == 1 || (repeat > 1 && seconds < least)) least = seconds;
  }
  return least;
}

/// Returns GF/s of products in FP64 and FP32.
double blas_speed() {
  const SingleThreadedBlas single;
  constexpr int kDouble = 448, kFloat = 560;  // the second has twice the products of the first
  constexpr double kProducts = double(kDouble) * kDouble * kDouble + double(kFloat) * kFloat * kFloat;
  return 2e-9 * kProducts /
         (seconds_of_product<double>(kDouble, dgemm_) + seconds_of_product<float>(kFloat, sgemm_));
}

/// Returns what a child prints until it closes its output; nothing if kLongestMeasurement is over before.
std::optional<std::string> read_output(int descriptor) {
  std::string text;
  const double start = steady_seconds();
  std::array<char, 256> buffer{};
  while (steady_seconds() - start < kLongestMeasurement) {
    pollfd poller{descriptor, POLLIN, 0};
    if (poll(&poller, 1, 100) == 0) continue;
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  return {};
}

/// Returns the environment with one thread and OpenBLAS's kernels for `core`.
std::vector<std::string> environment_for(const std::string& core) {
  const std::vector<std::string> own = {std::string(kVariable) + "=" + core, "OMP_NUM_THREADS=1",
                                        "OPENBLAS_NUM_THREADS=1"};
  std::vector<std::string> variables = own;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string text = *variable;
    const auto is_same = [&](const std::string& v) {
      return text.compare(0, v.find('=') + 1, v, 0, v.find('=') + 1) == 0;
    };
    if (std::none_of(own.begin(), own.end(), is_same)) variables.push_back(text);
  }
  return variables;
}

/// Measures a core in a child process, because its kernels may crash here. Returns GF/s, 0 if it does not
/// work or OpenBLAS does not have it and runs another one; nothing if that takes too long to tell.
std::optional<double> speed_of(const std::string& core) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return {};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  std::string program = "headspan", option = kSpeedOption;
  char* const arguments[] = {program.data(), option.data(), nullptr};
  std::vector<std::string> variables = environment_for(core);
  std::vector<char*> environment;
  for (std::string& variable : variables) environment.push_back(variable.data());
  environment.push_back(nullptr);
  pid_t child = 0;
  const int failure =
      posix_spawn(&child, executable_path(), &actions, nullptr, arguments, environment.data());
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  const std::optional<std::string> text = failure == 0 ? read_output(ends[0]) : "";
  ::close(ends[0]);
  if (failure != 0) return {};
  kill(child, SIGKILL);  // it has ended, or takes too long
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  if (!text) return {};
  std::istringstream words(*text);
  std::string runs;
  double speed = 0;
  return words >> runs >> speed && runs == core ? speed : 0;
}

/// Returns the name of this kind of processor, as Linux gives it.
std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.compare(0, 10, "model name") == 0) return line;
  return "";
}

/// Returns the file that keeps the choice for this processor and this OpenBLAS; "" if there is no folder.
std::string cache_file() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::string folder;
  if (cache != nullptr && cache[0] == '/')
    folder = cache;
  else if (home != nullptr && home[0] == '/')
    folder = std::string(home) + "/.cache";
  else
    return "";
  return folder + "/headspan/blas-" +
         sha256_hex(processor_name() + "\n" + openblas_get_config()).substr(0, 16);
}

/// Returns the core in the file; "" unless it is one of `cores`.
std::string read_choice(const std::string& path, const std::vector<std::string>& cores) {
  std::ifstream file(path);
  std::string core;
  file >> core;
  return std::find(cores.begin(), cores.end(), core) != cores.end() ? core : "";
}

/// Writes the choice beside its final name first, so that other processes read all of it or nothing.
void write_choice(const std::string& path, const std::string& core) {
  if (path.empty()) return;
  try {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    const std::string temporary = path + "." + std::to_string(getpid());
    OutputFile(temporary).append(core + "\n");
    std::filesystem::rename(temporary, path);
  } catch (const std::exception&) {  // the next process measures again
  }
}

/// Returns the core to use, from the file or measured.
std::string best_core() {
  const std::string loaded = openblas_get_corename();
  std::vector<std::string> cores = possible_cores();
  if (cores.empty()) return loaded;
  if (std::find(cores.begin(), cores.end(), loaded) == cores.end()) cores.push_back(loaded);
  const std::string path = cache_file();
  if (const std::string kept = read_choice(path, cores); !kept.empty()) return kept;
  std::map<std::string, double> speeds;
  for (const std::string& core : cores) {
    const std::optional<double> speed = speed_of(core);
    if (!speed) return loaded;  // too busy a machine to choose: the next process measures again
    if (*speed > 0) speeds[core] = *speed;
  }
  const std::string best = choose_core(loaded, speeds);
  write_choice(path, best);
  return best;
}

}  // namespace

bool print_blas_speed(int argc, char** argv) {
  if (argc != 2 || std::string(argv[1]) != kSpeedOption || !is_openblas()) return false;
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // kernels that crash here shall leave no file
  std::printf("%s %.6g\n", openblas_get_corename(), blas_speed());
  return true;
}

std::string choose_core(const std::string& loaded, const std::map<std::string, double>& speeds) {
  std::string best = loaded;
  const auto own = speeds.find(loaded);
  double to_beat = own != speeds.end() ? kFasterBy * own->second : 0;
  for (const auto& [core, speed] : speeds)
    if (speed > to_beat) {
      best = core;
      to_beat = speed;
    }
  return best;
}

bool use_best_blas_core() {
  if (!is_openblas() || std::getenv(kVariable) != nullptr) return false;
  const std::string core = best_core();
  return core != openblas_get_corename() && setenv(kVariable, core.c_str(), 0) == 0;
}

std::string describe_blas() {
  if (!is_openblas()) return "";
  std::istringstream words(openblas_get_config());  // "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..."
  std::string name, version;
  words >> name >> version;
  return name + " " + version + ", " + openblas_get_corename() + " kernels";
}

std::string blas_warning() {
  if (!is_openblas() || possible_cores().empty()) return {};
  const std::string core = openblas_get_corename();
  for (const char* slow :
       {"Prescott", "Core2", "Penryn", "Dunnington", "Nehalem", "Atom", "generic", "Generic"})
    if (core == slow)
      return "OpenBLAS runs its " + core +
             " kernels on a processor with AVX2, several times too slow; unset OPENBLAS_CORETYPE, so that "
             "headspan chooses";
  return {};
}

}  // namespace headspan
