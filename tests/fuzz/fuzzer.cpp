// The fuzzer of one target, HEADSPAN_FUZZ_TARGET, on libFuzzer, whose options it takes. A reader that
// allocates more at once than four times its input, or kMostBytes where that is more, fails as a crash does.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include <sanitizer/allocator_interface.h>

#include "dist/comm/mpi.h"
#include "fuzz/fuzz_target.h"

namespace headspan {
namespace {

constexpr std::size_t kMostBytes = std::size_t{8} << 20;

std::atomic<std::size_t> most_bytes{0};  // that may be allocated at once; 0: any number

void check_size(const volatile void*, std::size_t bytes) {
  const std::size_t most = most_bytes;
  if (most == 0 || bytes <= most) return;
  most_bytes = 0;  // what follows allocates, too
  std::fprintf(stderr, "an input made its reader allocate %zu bytes at once\n", bytes);
  std::abort();
}

void ignore(const volatile void*) {}

/// The folder of this process's inputs, in memory where there is /dev/shm.
std::string make_folder() {
  const std::string parent = std::filesystem::exists("/dev/shm") ? "/dev/shm" : "/tmp";
  std::string folder = parent + "/headspan-fuzz-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) std::abort();
  return folder;
}

struct Fuzzer {
  Fuzzer(int* argc, char*** argv)
      : session(argc, argv),
        target(find_target(std::getenv("HEADSPAN_FUZZ_TARGET"))),
        folder(make_folder()) {}

  MpiSession session;
  FuzzTarget target;
  std::string folder;
};

Fuzzer* fuzzer = nullptr;  // libFuzzer's functions have no other place for it

}  // namespace
}  // namespace headspan

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  headspan::fuzzer =
      new headspan::Fuzzer(argc, argv);  // stays until the process ends, which libFuzzer decides
  std::atexit([] { std::filesystem::remove_all(headspan::fuzzer->folder); });
  __sanitizer_install_malloc_and_free_hooks(headspan::check_size, headspan::ignore);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headspan;
  const std::string input(reinterpret_cast<const char*>(data), size);
  most_bytes = std::max(kMostBytes, 4 * size);
  try {
    takes(fuzzer->target, fuzzer->folder, input);
  } catch (const std::exception& error) {  // which MpiSession would end the process for, without its input
    std::fprintf(stderr, "an input made its reader fail: %s\n", error.what());
    std::abort();
  }
  most_bytes = 0;
  return 0;
}
