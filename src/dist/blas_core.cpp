#include "dist/blas_core.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <vector>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/process/process_setup.h"
#include "dist/fastest_choice.h"
#include "dist/matrix/scalapack.h"

// Functions of OpenBLAS; null with any other BLAS.
extern "C" {
__attribute__((weak)) char* openblas_get_corename();
__attribute__((weak)) char* openblas_get_config();
}

namespace headspan {
namespace {

constexpr const char* kVariable = "OPENBLAS_CORETYPE";
constexpr const char* kSpeedOption = "--blas-speed";
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

/// Returns a function that multiplies two square matrices of `size` rows in type T.
template <class T, class Gemm>
std::function<void()> product(int size, const Gemm& gemm) {
  const std::vector<T> x(static_cast<std::size_t>(size) * static_cast<std::size_t>(size), T(1));
  return [x, y = x, size, gemm]() mutable {
    const T one = 1, zero = 0;
    gemm("N", "T", &size, &size, &size, &one, x.data(), &size, x.data(), &size, &zero, y.data(), &size);
  };
}

/// Returns GF/s of products in FP64 and FP32.
double blas_speed() {
  constexpr int kDouble = 448, kFloat = 560;  // the second has twice the products of the first
  constexpr double kProducts = double(kDouble) * kDouble * kDouble + double(kFloat) * kFloat * kFloat;
  const std::vector<double> seconds =
      least_seconds({product<double>(kDouble, dgemm_), product<float>(kFloat, sgemm_)});
  return 2e-9 * kProducts / (seconds[0] + seconds[1]);
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
  environment.reserve(variables.size() + 1);
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

/// Measures all cores. Returns the one to use, or "" if the machine is too busy to choose.
std::string measured_core(const std::string& loaded, const std::vector<std::string>& cores) {
  std::map<std::string, double> speeds;
  for (const std::string& core : cores) {
    const std::optional<double> speed = speed_of(core);
    if (!speed) return "";
    if (*speed > 0) speeds[core] = *speed;
  }
  return fastest(loaded, speeds);
}

/// Returns the core to use, kept or measured.
std::string best_core() {
  std::string loaded = openblas_get_corename();
  std::vector<std::string> cores = possible_cores();
  if (cores.empty()) return loaded;
  if (std::find(cores.begin(), cores.end(), loaded) == cores.end()) cores.push_back(loaded);
  const std::string core =
      kept_choice({"blas", openblas_get_config(), cores}, [&] { return measured_core(loaded, cores); });
  return core.empty() ? loaded : core;
}

}  // namespace

bool print_blas_speed(int argc, char** argv) {
  if (argc != 2 || std::string(argv[1]) != kSpeedOption || !is_openblas()) return false;
  const rlimit none{0, 0};
  setrlimit(RLIMIT_CORE, &none);  // kernels that crash here shall leave no file
  std::printf("%s %.6g\n", openblas_get_corename(), blas_speed());
  return true;
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
