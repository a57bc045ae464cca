#include "fuzz/fuzz_target.h"

#include <cstdio>
#include <cstdlib>

#include "base/error.h"
#include "dist/comm/agreement.h"

namespace headspan {

bool takes(const FuzzTarget& target, const std::string& folder, const std::string& input) {
  try {
    target.read(folder, input);
    return true;
  } catch (const InputError&) {
  } catch (const AgreedError& error) {
    if (error.exit_code() != 2) throw;
  }
  return false;
}

FuzzTarget find_target(const std::string& name) {
  const char* const bases = std::getenv("HEADSPAN_FUZZ_BASES");
  std::vector<FuzzTarget> targets = file_targets();
  if (bases != nullptr)
    for (FuzzTarget& target : hdf5_targets(bases)) targets.push_back(std::move(target));
  for (FuzzTarget& target : targets)
    if (target.name == name) return std::move(target);
  std::fprintf(stderr, "no target '%s'; known:", name.c_str());
  for (const FuzzTarget& target : targets) std::fprintf(stderr, " %s", target.name.c_str());
  std::fprintf(stderr, "\n");
  std::exit(2);
}

}  // namespace headspan
