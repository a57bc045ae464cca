// The program: reads the command line, starts MPI, runs the command, and turns every outcome into its exit
// code.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "app/command_line.h"
#include "app/compress/calibrate.h"
#include "app/evaluate/evaluate.h"
#include "app/inspect/inspect.h"
#include "app/plan/plan.h"
#include "app/study/study.h"
#include "app/study/unit_list.h"
#include "app/theory.h"
#include "base/process/process_setup.h"
#include "base/process/stop_signal.h"
#include "base/process/watchdog.h"
#include "dist/comm/agreement.h"

namespace headspan {
namespace {

/// Returns the exit code. Throws AgreedError. Collective over world.
int call(const Request& request, const Comm& world) {
  switch (request.command) {
    case Command::study:
      return study(request.job, world);
    case Command::calibrate:
      return calibrate(request.job, world);
    case Command::evaluate:
      return evaluate(request.job, world);
    case Command::plan:
      return plan(request.job, request.plan, world);
    case Command::theory:
      return theory(request.job.theory, world);
    case Command::inspect:
      return inspect(request.files, world);
  }
  throw Error("no such command");
}

/// Returns the exit code. Collective over world.
int run_command(const Request& request, const std::exception_ptr& failure, const Comm& world) {
  try {
    agree(world, [&] {
      if (failure) std::rethrow_exception(failure);
    });
    return call(request, world);
  } catch (const AgreedError& e) {
    if (world.is_root()) std::fprintf(stderr, "headspan: %s\n", e.what());
    return e.exit_code();
  }
}

/// `failure`: what was wrong with the command line, if anything. Returns the exit code. Collective over all
/// ranks.
int run_command(const Request& request, const std::exception_ptr& failure) {
  try {
    return run_command(request, failure, Comm::duplicate(MPI_COMM_WORLD));
  } catch (const std::bad_alloc&) {  // this and what follows: of this rank alone, for which the others wait
    abort_job("out of memory");
  } catch (const std::exception& e) {
    abort_job(error_message(e));
  }
}

/// The rank that a launcher gave this process; null where none started it.
const char* launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return rank;
  return nullptr;
}

/// For what is answered without MPI.
bool is_first_process() { return launched_rank() == nullptr || std::string(launched_rank()) == "0"; }

/// What is wrong with the command line, told without MPI, which may not start on a login node. Returns the
/// exit code.
int tell(const std::exception& e) {
  std::fprintf(stderr, "headspan: %s\n", error_message(e).c_str());
  return dynamic_cast<const InputError*>(&e) != nullptr ? 2 : 1;
}

/// Holds signals back before the libraries are initialised: threads that they start would otherwise take a
/// signal that only main's thread holds. (src/README.md lists what headspan changes in its process.)
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)() = hold_stop_signals;

/// Starts MPI, which waits for every rank: for ever, where a signal has ended one of them while its libraries
/// were loaded and was held by this one.
MpiSession start_mpi(int* argc, char*** argv) {
  constexpr std::chrono::seconds kTimeout{5};
  const auto poll = [] { return Watchdog::Status{0, stop_signal_seen(), ""}; };
  const Watchdog watchdog(kTimeout, poll, [](const std::string&) {
    std::fputs("headspan: stopped by a signal before all ranks had started; nothing of this run is kept\n",
               stderr);
    std::_Exit(1);
  });
  return MpiSession(argc, argv);
}

}  // namespace
}  // namespace headspan

int main(int argc, char** argv) {
  headspan::restore_process_name();
  headspan::disable_heap_trim();
  using namespace headspan;
  Request request;
  std::exception_ptr failure;
  try {
    request = parse_command_line(argc, argv);
    if (request.units) request.answer = format_units(request.job);
  } catch (const std::exception& e) {
    if (launched_rank() == nullptr) return tell(e);
    failure = std::current_exception();  // told through MPI: once, though every process finds it
  }
  if (!request.answer.empty()) {
    if (is_first_process()) std::fputs(request.answer.c_str(), stdout);
    return 0;
  }
  try {
    if (!failure && row_of(request.command).runs_long) {
      set_passive_wait_and_reexec(argv);
      catch_stop_signals();
    } else {
      release_stop_signals();
    }
    const MpiSession session = start_mpi(&argc, &argv);
    return run_command(request, failure);
  } catch (const std::exception& e) {  // with MPI not there
    abort_job(error_message(e));
  }
}
