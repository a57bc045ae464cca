// The program: reads the command line, starts MPI, runs the command, and turns every outcome into its exit
// code.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "app/command_line.h"
#include "app/inspect.h"
#include "app/study.h"
#include "dist/agreement.h"

namespace headspan {
namespace {

/// Tells an error of all ranks once.
int tell(const std::string& what, int exit_code, bool speaks) {
  if (speaks) std::fprintf(stderr, "headspan: %s\n", what.c_str());
  return exit_code;
}

int run_command(const Request& request, const Comm& world) {
  try {
    return request.command == "inspect" ? inspect(request.files, world) : study(request.job, world);
  } catch (const AgreedError& e) {
    return tell(e.what(), e.exit_code(), world.is_root());
  } catch (const std::exception& e) {  // of this rank alone: the others would wait for it
    abort_job(e.what(), 1);
  }
}

/// The rank that a launcher gave this process, before MPI runs: so that a wrong command line is told once.
bool is_first_process() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return std::string(rank) == "0";
  return true;
}

}  // namespace
}  // namespace headspan

int main(int argc, char** argv) {
  using namespace headspan;
  Request request;
  try {
    request = parse_command_line(argc, argv);
  } catch (const InputError& e) {
    return tell(e.what(), 2, is_first_process());
  } catch (const std::exception& e) {
    return tell(e.what(), 1, is_first_process());
  }
  if (!request.answer.empty()) {
    if (is_first_process()) std::fputs(request.answer.c_str(), stdout);
    return 0;
  }
  MpiSession session(&argc, &argv);
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  return run_command(request, world);
}
