// The program: parses the command line, starts MPI, runs the command, and turns every outcome into an exit
// code.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>

#include "app/archive/calibrate_codec.h"
#include "app/archive/decode.h"
#include "app/archive/encode.h"
#include "app/command_line.h"
#include "app/compress/calibrate.h"
#include "app/evaluate/evaluate.h"
#include "app/inspect/inspect.h"
#include "app/plan/plan.h"
#include "app/run/library_versions.h"
#include "app/run/rank_resources.h"
#include "app/study/study.h"
#include "app/study/unit_list.h"
#include "app/theory.h"
#include "base/process/launcher.h"
#include "base/process/process_setup.h"
#include "base/process/stop_signal.h"
#include "base/process/watchdog.h"
#include "dist/blas_core.h"
#include "dist/comm/agreement.h"
#include "dist/comm/lost_rank_watch.h"

namespace headspan {
namespace {

/// Returns the exit code. Throws AgreedError. Collective over world.
int call(const Request& request, const Comm& world, const Log& log) {
  switch (request.command) {
    case Command::study:
      return study(request.job, world, log, request.dry_run);
    case Command::calibrate:
      return calibrate(request.job, world, log);
    case Command::evaluate:
      return evaluate(request.job, world, log);
    case Command::plan:
      return plan(request.job, request.plan, world, log);
    case Command::theory:
      return theory(request.job.theory, world, log);
    case Command::archive_calibrate:
      return calibrate_codec(request.job, world, log);
    case Command::archive_encode:
      return encode_archive(request.job, world, log);
    case Command::archive_decode:
      return decode_archive(request.job, world, log);
    case Command::inspect:
      return inspect(request.files, request.json, world, log);
  }
  throw Error("no such command");
}

/// Returns the exit code. Collective over world.
int run_command(const Request& request, const std::exception_ptr& failure, const Comm& world,
                std::optional<LostRankWatch>& watch) {
  const Log log(world.is_root(), stderr, request.verbosity);
  try {
    agree(world, [&] {
      if (failure) std::rethrow_exception(failure);
    });
    const bool watches = row_of(request.command).runs_long;
    watch.emplace(world, watches ? request.job.run.heartbeat_seconds : 0);
    const int code = call(request, world, log);
    if (watches) tell_memory(world, log);
    return code;
  } catch (const AgreedError& e) {
    if (world.is_root()) std::fprintf(stderr, "headspan: %s\n", e.what());
    return e.exit_code();
  }
}

/// Runs the request, or reports `failure`, which is what was wrong with the command line. Returns the exit
/// code. Begins the watch. Collective over all ranks.
int run_command(const Request& request, const std::exception_ptr& failure,
                std::optional<LostRankWatch>& watch) {
  try {
    return run_command(request, failure, Comm::duplicate(MPI_COMM_WORLD), watch);
  } catch (const std::exception& e) {
    abort_job(error_message(e));  // this rank fails alone: the others would wait for it
  }
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
  if (request.version) {
    const std::string blas = describe_blas();
    answer += (blas.empty() ? "" : blas + "\n") + list_libraries();
  }
  if (is_first_process()) std::fputs(answer.c_str(), stdout);
  return 0;
}

/// Blocks stop signals before the libraries are initialised, so that the threads that these start inherit the
/// block: one without it would receive the signal. (src/README.md lists what headspan changes in its
/// process.)
__attribute__((section(".preinit_array"), used)) void (*const before_libraries)() = hold_stop_signals;

/// Logs a notice if a launcher has started several processes and MPI has joined none of them.
void tell_launcher(long processes, const Log& log) {
  int joined = 1;
  HS_MPI(MPI_Comm_size(MPI_COMM_WORLD, &joined));
  if (joined > 1 || processes == 1) return;
  log.notice(
      "the launcher has started " + std::to_string(processes) + " processes, but " + mpi_version() +
      " joins none of them: each works alone. Use the mpirun of this MPI; under Slurm, an --mpi that it "
      "knows (srun --mpi=list)");
}

/// Starts MPI, which waits for every rank. It would wait forever if a signal ended another rank while that
/// loaded its libraries (this rank has blocked the same signal), or if another hangs: watchdogs end this
/// rank.
MpiSession start_mpi(int* argc, char*** argv) {
  constexpr std::chrono::seconds kAfterSignal{5};
  constexpr std::chrono::minutes kToStart{10};
  const auto end = [](const char* why) {
    return [why](const std::string& = {}) {
      std::fprintf(stderr, "headspan: %s; nothing of this run is kept\n", why);
      std::_Exit(1);
    };
  };
  const Watchdog signalled(
      kAfterSignal,
      [] {
        return Watchdog::Status{0, stop_signal_seen(), ""};
      },
      end("stopped by a signal before all ranks had started"));
  const Watchdog starting(kToStart,
                          end("MPI has not started within 10 minutes: some rank hangs or was never started"));
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
    std::optional<LostRankWatch> watch;  // until MPI has ended, which waits for all ranks
    const Log log(is_first_process(), stderr, request.verbosity);  // before MPI changes the environment
    const long launched = launched_processes();
    const MpiSession session = start_mpi(&argc, &argv);
    tell_launcher(launched, log);
    return run_command(request, failure, watch);
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
