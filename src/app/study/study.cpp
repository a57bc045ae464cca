#include "app/study/study.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "app/capture/unit_state.h"
#include "app/job/job_rules.h"
#include "app/job/unit.h"
#include "app/plan/memory_check.h"
#include "app/run/rank_resources.h"
#include "app/run/sample.h"
#include "app/sources/gram_source.h"
#include "app/study/dry_run.h"
#include "app/study/published.h"
#include "app/study/run_unit.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/progress.h"
#include "base/provenance.h"
#include "dist/blas_core.h"
#include "dist/comm/agreement.h"
#include "dist/comm/shared_counter.h"
#include "io/outputs/lock_file.h"
#include "stats/gram/product_kind.h"

namespace headspan {
namespace {

/// A unit that could not be computed.
struct Failure {
  std::string what;
  int exit_code;
};

/// What is known before any rank works.
struct Plan {
  std::vector<Unit> units;  // to be computed
  std::int64_t skipped = 0;
  std::vector<std::string> notices;  // on rank 0
  int tensor_parallel = 1;
  double gpu_memory = 0;  // bytes per rank; 0 without a GPU
  double memory = 0;      // bytes of a rank, of its GPU if it has one
};

/// Removes what is left beside a result by a run that was killed after publishing it. Local.
void tidy_up(const Job& job, const Unit& unit, const Log& log) {
  const std::string path = unit.result_path(job.output.directory);
  if (!std::filesystem::exists(path + ".lock") && !std::filesystem::exists(path + ".state")) return;
  try {
    if (const auto lock = LockFile::take(path, job_id(), log)) remove_state(job, unit);
  } catch (const std::exception&) {
    // The other run still holds the lock and will tidy up itself, or the folder cannot be changed.
  }
}

/// Returns the texts of all ranks, in rank order, on rank 0; nothing on the others. The texts must not
/// contain NUL. Collective over world.
std::vector<std::string> gather(const Comm& world, const std::vector<std::string>& texts) {
  std::vector<char> letters;
  for (const std::string& text : texts)
    letters.insert(letters.end(), text.c_str(), text.c_str() + text.size() + 1);
  std::vector<std::string> all;
  for (const std::vector<char>& received : world.gather(std::move(letters)))
    for (std::size_t i = 0; i < received.size(); i += all.back().size() + 1) all.emplace_back(&received[i]);
  return all;
}

/// Removes published units from `plan`, and what is left beside them unless this is a dry run. Each rank
/// checks its share of the units. Collective over world.
void skip_published(const Job& job, const Comm& world, const Log& log, Plan& plan, bool dry_run) {
  std::vector<int> complete(plan.units.size(), 0);
  std::vector<std::string> notices;
  agree(world, [&] {
    for (auto u = static_cast<std::size_t>(world.rank()); u < complete.size();
         u += static_cast<std::size_t>(world.size()))
      if ((complete[u] = is_published(job, plan.units[u], notices) ? 1 : 0) == 1 && !dry_run)
        tidy_up(job, plan.units[u], log);
  });
  plan.notices = gather(world, notices);
  world.sum(complete.data(), static_cast<std::int64_t>(complete.size()));
  std::vector<Unit> open;
  for (std::size_t u = 0; u < complete.size(); ++u)
    if (complete[u] == 0) open.push_back(plan.units[u]);
  plan.skipped = static_cast<std::int64_t>(plan.units.size() - open.size());
  plan.units = std::move(open);
}

/// Checks everything that the units read, the sizes of their matrices, and where they write. Each rank checks
/// its share of the units. Collective over world.
void check_units(const Job& job, const Comm& world, const std::vector<Unit>& units) {
  const GridShape grid = job.run.grid.value_or(squarest_grid(world.size() / job.run.groups));
  agree(world, [&] {
    const auto ranks = static_cast<std::size_t>(world.size());
    for (auto u = static_cast<std::size_t>(world.rank()); u < units.size(); u += ranks)
      check_unit(job, units[u], grid);
  });
  agree(world, [&] {
    if (world.is_root())
      for (const Unit& unit : units) check_writable(job, unit);
  });
}

/// Lists the units to be computed, and checks the job as a whole. Collective over world.
Plan make_plan(const Job& job, const Comm& world, const Log& log, std::optional<int> gpu, bool dry_run) {
  Plan plan;
  if (gpu) plan.gpu_memory = gpu_memory_of_rank(job.run, world, *gpu);
  const double memory = gpu ? plan.gpu_memory : memory_of_rank(job.run, world);  // for the weights
  plan.memory = memory;
  agree(world, [&] {
    check_layout(world.size(), job.run.groups, job.run.tensor_parallel.value_or(1), job.run.grid);
    plan.units = list_units(job);
  });
  if (!job.tokens.path.empty()) {
    const std::string tokens = hash_tokens(job.tokens, world), cut = hash_cut(job.tokens, world);
    set_token_digests(plan.units, tokens, cut);
  }
  skip_published(job, world, log, plan, dry_run);
  check_units(job, world, plan.units);
  agree(world, [&] {
    const int group_ranks = world.size() / to_int(job.run.groups);
    plan.tensor_parallel = choose_tensor_parallel(
        job.run, job.model, plan.units, saves_attention(job.predict, job.output), group_ranks, memory);
    if (gpu || !world.is_root() || plan.units.empty() || plan.units.front().kind != Unit::Kind::model) return;
    const GridShape grid = job.run.grid.value_or(squarest_grid(group_ranks));
    const std::string notice =
        check_memory(job, plan.units, {group_ranks, plan.tensor_parallel, grid}, memory);
    if (!notice.empty()) plan.notices.push_back(notice);
  });
  return plan;
}

/// The outcome of the units that a group took.
struct Outcome {
  std::vector<Failure> failures;  ///< on the root of the group
  std::int64_t done = 0;
  bool stopped = false;  ///< before all units were done
  std::string saved;     ///< the unit whose state is saved; empty: none
};

/// Says which unit begins, and when all will be done if the others take as long as those so far. `taken`:
/// units that the groups have taken before it.
void tell_begin(const Job& job, const Plan& plan, std::int64_t taken, double start, const Log& log) {
  const auto count = static_cast<std::int64_t>(plan.units.size());
  if (count == 1) return;
  const std::int64_t finished = std::max<std::int64_t>(0, taken - (job.run.groups - 1));
  const double each = (steady_seconds() - start) / real(std::max<std::int64_t>(finished, 1));
  log.event("checkpoint",
            {{"unit", plan.units[static_cast<std::size_t>(taken)].name},
             {"number", std::to_string(taken + 1) + "/" + std::to_string(count)},
             {"sweep_eta", finished > 0 ? clock_text(each * real(count - finished)) : "unknown"}});
}

/// Takes units from the counter until none is left or the clock says stop, and runs them. Collective over
/// world.
Outcome run_units(const Job& job, const Plan& plan, const InputWatch& inputs, const ProcessLayout& processes,
                  RunClock& clock, const Log& log) {
  Outcome outcome;
  SharedCounter counter(processes.world(), processes.group_number(), processes.groups());
  if (processes.groups() > 1 && !counter.is_shared())
    log.notice(
        "this MPI has no one-sided communication between all ranks: group g takes units g, g + groups, ..");
  const auto next = [&] {
    std::int64_t number = processes.group().is_root() ? counter.next() : 0;
    processes.group().broadcast(&number, 1, 0);
    return number;
  };
  const auto count = static_cast<std::int64_t>(plan.units.size());
  const double start = steady_seconds();
  bool first = true;  // the first unit is always started, so that each run gets further than the one before
  for (std::int64_t u = next(); u < count && !outcome.stopped; u = next()) {
    try {
      outcome.stopped = !first && clock.next(processes.group()) == RunClock::Step::save_and_stop;
      if (outcome.stopped) break;
      tell_begin(job, plan, u, start, log);
      run_unit(job, plan.units[static_cast<std::size_t>(u)], inputs, processes, clock, log);
      ++outcome.done;
      first = false;
    } catch (const Stopped& stop) {
      outcome.stopped = true;
      if (stop.state_saved) outcome.saved = plan.units[static_cast<std::size_t>(u)].name;
    } catch (const AgreedError& e) {
      if (processes.group().is_root()) outcome.failures.push_back({e.what(), e.exit_code()});
    }
  }
  counter.close();
  return outcome;
}

/// Returns the job with the choice that predict.precision = auto leaves, and logs it. Collective over world.
Job with_chosen_products(Job job, const Comm& world, bool on_gpus, const Log& log) {
  if (job.predict.precision) return job;
  job.predict.integers = !on_gpus && multiplies_integers(world);
  log.notice("predict.precision = auto: " + word_of(precision_words(), job.predict.product(Dtype::float32)) +
             (job.predict.integers ? ", in 8-bit integers, but float64 for values in float64" : ""));
  return job;
}

/// Returns the texts of all ranks, joined in rank order, on rank 0. Collective over world.
std::string collect(const std::string& text, const Comm& world) {
  std::string all;
  for (const std::string& part : gather(world, {text})) all += part;
  return all;
}

/// Prints on rank 0 why the run stopped, what is saved and how to resume. Collective over world.
void report_stop(const Outcome& outcome, const ProcessLayout& processes, std::size_t units) {
  const Comm& world = processes.world();
  const bool speaks = processes.group().is_root();
  std::int64_t done = speaks ? outcome.done : 0;
  world.sum(&done, 1);
  const std::string saved = collect(speaks && !outcome.saved.empty() ? " " + outcome.saved : "", world);
  const bool signal = stop_signal_seen(world);
  if (!world.is_root()) return;
  std::fprintf(stderr, "headspan: stopped %s: %lld of %zu units are done, %s%s; the same command goes on\n",
               signal ? "by a signal" : "at run.time_limit", static_cast<long long>(done), units,
               saved.empty() ? "nothing had to be saved" : "saved is the state of", escaped(saved).c_str());
}

/// Prints all failures on rank 0 and returns the exit code. It is 3 if any group has stopped: the job is then
/// submitted again, and units that failed are tried again. Collective over world.
int report_failures(const Outcome& outcome, const Comm& world) {
  const std::vector<Failure>& failures = outcome.failures;
  std::string lines;
  int code = 0;
  for (const Failure& failure : failures) {
    lines += "headspan: " + failure.what + "\n";
    code = code == 1 ? 1 : failure.exit_code;
  }
  std::fputs(collect(lines, world).c_str(), stderr);
  if (outcome.stopped) code = 3;
  const auto codes = world.all_gather(code);
  if (std::find(codes.begin(), codes.end(), 3) != codes.end()) return 3;
  if (std::find(codes.begin(), codes.end(), 1) != codes.end()) return 1;
  return *std::max_element(codes.begin(), codes.end());
}

}  // namespace

int study(const Job& asked, const Comm& world, const Log& log, bool dry_run) {
  const double start = steady_seconds();
  const InputWatch inputs(asked);
  RunClock clock(asked.run);
  const std::optional<int> gpu = choose_gpu(asked.run, world);
  const int threads = start_threads(world, log);
  const Job job = with_chosen_products(asked, world, gpu.has_value(), log);
  const Plan plan = make_plan(job, world, log, gpu, dry_run);
  if (const std::string warning = blas_warning(); !warning.empty()) log.warning(warning);
  for (const std::string& notice : plan.notices) log.notice(notice);
  if (dry_run) {
    agree(world, [&] {
      if (!world.is_root()) return;
      const DryRun run{plan.units, plan.skipped, world.size(), gpu.has_value(), plan.memory};
      std::fputs(describe_run(job, run, log).c_str(), stdout);
    });
    return 0;
  }
  log.event("study", {{"units", std::to_string(plan.units.size())},
                      {"skipped", std::to_string(plan.skipped)},
                      {"ranks", std::to_string(world.size())},
                      {"groups", std::to_string(job.run.groups)},
                      {"tensor_parallel", std::to_string(plan.tensor_parallel)},
                      {"threads", std::to_string(threads)},
                      {"blas", describe_blas()},
                      {"version", program_version()}});
  const ProcessLayout processes(world, to_int(job.run.groups), plan.tensor_parallel, job.run.grid, gpu,
                                plan.gpu_memory);
  const Outcome outcome = run_units(job, plan, inputs, processes, clock, log);
  const int code = report_failures(outcome, world);
  if (code == 3) report_stop(outcome, processes, plan.units.size());
  if ((code == 0 || code == 3) && world.is_root())
    std::printf("status=%s units=%zu skipped=%lld seconds=%.1f\n", code == 0 ? "done" : "stopped",
                plan.units.size(), static_cast<long long>(plan.skipped), steady_seconds() - start);
  if (code == 0) log.next("headspan inspect " + shell_word(job.output.directory));
  return code;
}

}  // namespace headspan
