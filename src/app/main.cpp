// The program: parses the command line, starts MPI, runs the command, and turns every outcome into an exit
// code.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>

#include "app/archive/calibrate_codec.h"
#include "app/archive/decode.h"
#include "app/archive/encode.h"
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
#include "dist/blas_core.h"
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
    case Command::archive_calibrate:
      return calibrate_codec(request.job, world);
    case Command::archive_encode:
      return encode_archive(request.job, world);
    case Command::archive_decode:
      return decode_archive(request.job, world);
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

/// Runs the request, or reports `failure`, which is what was wrong with the command line. Returns the exit
/// code. Collective over all ranks.
int run_command(const Request& request, const std::exception_ptr& failure) {
  try {
    return run_command(request, failure, Comm::duplicate(MPI_COMM_WORLD));
  } catch (const std::bad_alloc&) {
    abort_job("out of memory");  // this rank fails alone: the others would wait for it
  } catch (const std::exception& e) {
    abort_job(error_message(e));
  }
}

/// Returns the rank that a launcher gave this process; null if no launcher started it.
const char* launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(name)) return rank;
  return nullptr;
}

/// Returns whether this process is the one that prints while MPI is not started.
bool is_first_process() { return launched_rank() == nullptr || std::string(launched_rank()) == "0"; }

/// Reports what is wrong with the command line without MPI, which may not start on a login node. Returns the
/// exit code.
int report(const std::exception& e) {
  std::fprintf(stderr, "headspan: %s\n", error_message(e).c_str());
  return dynamic_cast<const InputError*>(&e) != nullptr ? 2 : 1;
}

/// Prints the answer to a question that needs no MPI. Returns the exit code.
int print_answer(const Request& request, char** argv) {
  if (request.version && use_best_blas_core()) start_again(argv);
  std::string answer = request.answer;
  if (const std::string blas = request.version ? describe_blas() : ""; !blas.empty()) answer += blas + "\n";
  if (is_first_process()) std::fputs(answer.c_str(), stdout);
  return 0;
}

/// Blocks stop signals before the libraries are initialised, so that the threads that these start inherit the
/// block: one without it would receive the signal. (src/README.md lists what headspan changes in its
/// process.)
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)() = hold_stop_signals;

/// Starts MPI, which waits for every rank. It would wait forever if a signal ended another rank while that
/// loaded its libraries; this rank has blocked the same signal, and the watchdog ends it.
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

/// Returns the exit code.
int run(int argc, char** argv) {
  if (print_blas_speed(argc, argv)) return 0;
  Request request;
  std::exception_ptr failure;
  try {
    request = parse_command_line(argc, argv);
    if (request.units) request.answer = format_units(request.job);
  } catch (const std::exception& e) {
    if (launched_rank() == nullptr) return report(e);
    failure = std::current_exception();  // every process has the same; with MPI, rank 0 alone reports it
  }
  if (!request.answer.empty()) return print_answer(request, argv);
  try {
    if (!failure && row_of(request.command).runs_long) {
      const bool waits = set_passive_wait(), multiplies = use_best_blas_core();
      if (waits || multiplies) start_again(argv);
      catch_stop_signals();
    } else {
      release_stop_signals();
    }
    const MpiSession session = start_mpi(&argc, &argv);
    return run_command(request, failure);
  } catch (const std::exception& e) {  // MPI did not start
    abort_job(error_message(e));
  }
}

}  // namespace
}  // namespace headspan

int main(int argc, char** argv) {
  headspan::restore_process_name();
  headspan::disable_heap_trim();
  headspan::end_process(headspan::run(argc, argv));
}
