// Reads kept inputs, TARGET/FILE in FOLDER, as the fuzzer would, and says how many were refused. Fails as its
// readers do.
//
//   replay FOLDER SCRATCH
#include <cstdio>
#include <filesystem>

#include "base/input_file.h"
#include "dist/comm/mpi.h"
#include "fuzz/fuzz_target.h"

namespace headspan {
namespace {

void replay(const std::filesystem::path& inputs, const std::filesystem::path& scratch) {
  const FuzzTarget target = find_target(inputs.filename());
  const std::filesystem::path folder = scratch / target.name;
  std::filesystem::create_directories(folder);
  int all = 0, refused = 0;
  for (const auto& input : std::filesystem::directory_iterator(inputs)) {
    std::printf("%s\n", input.path().c_str());  // the last one in the output is that which failed
    std::fflush(stdout);
    ++all;
    if (!takes(target, folder, read_whole_file(input.path()))) ++refused;
  }
  std::printf("%s: %d inputs, %d refused\n", target.name.c_str(), all, refused);
}

}  // namespace
}  // namespace headspan

int main(int argc, char** argv) {
  const headspan::MpiSession session(&argc, &argv);
  if (argc != 3) return 2;
  int targets = 0;
  for (const auto& inputs : std::filesystem::directory_iterator(argv[1])) {
    headspan::replay(inputs.path(), argv[2]);
    ++targets;
  }
  return targets > 0 ? 0 : 1;
}
