#include "base/process/launcher.h"

#include <cstdlib>
#include <initializer_list>

namespace headspan {
namespace {

/// Returns the first of the variables that is set; null if none is.
const char* first_set(std::initializer_list<const char*> names) {
  for (const char* name : names)
    if (const char* value = std::getenv(name)) return value;
  return nullptr;
}

}  // namespace

const char* launched_rank() {
  return first_set({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"});
}

long launched_processes() {
  // A batch script has SLURM_NTASKS too, and it starts one process.
  const char* number = first_set({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS"});
  const long processes = number == nullptr ? 1 : std::strtol(number, nullptr, 10);
  return processes > 1 ? processes : 1;
}

}  // namespace headspan
