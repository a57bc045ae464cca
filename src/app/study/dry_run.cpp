#include "app/study/dry_run.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/plan/memory_cost.h"
#include "app/plan/plan_report.h"
#include "app/plan/planned_study.h"
#include "app/run/rank_resources.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/process/memory.h"

namespace headspan {
namespace {

/// Returns a line for each unit: whether a saved state is continued, its name and its result.
std::string list_open(const Job& job, const std::vector<Unit>& open) {
  std::size_t width = 0;
  for (const Unit& unit : open) width = std::max(width, unit.name.size());
  std::string text;
  for (const Unit& unit : open) {
    const bool saved = std::filesystem::exists(unit.state_path(job.output.directory));
    text += std::string(saved ? "  continue  " : "  compute   ") + escaped(unit.name) +
            std::string(width - unit.name.size() + 2, ' ') + escaped(unit.result_path(job.output.directory)) +
            "\n";
  }
  return text;
}

/// Returns lines on the memory of the fullest rank and the time.
std::string describe_costs(Job job, const DryRun& run, const Log& log) {
  (run.on_gpus ? job.run.gpu_memory_gib : job.run.memory_gib) = run.memory / (1 << 30);
  const PlannedStudy planned = plan_study(job, run.ranks, log);
  MemoryCost memory =
      memory_cost(job, planned.config, planned.dtype, planned.tokens, planned.group, planned.beside());
  memory.program = idle_process_bytes();
  const PlanReport report = report_plan(job, planned, memory, Rates());
  double unit = 0;
  for (const auto& [phase, seconds] : report["seconds_of_a_unit"].items()) unit += seconds.get<double>();
  const double rounds = std::ceil(real(static_cast<std::int64_t>(run.open.size())) / real(job.run.groups));
  const double peak = run.on_gpus ? report["bytes_of_the_fullest_gpu"]["peak"].get<double>() : memory.peak();
  return "memory: " + format_gib(peak, 2) + " on the fullest " + (run.on_gpus ? "GPU" : "rank") + " of " +
         format_gib(run.memory, 2) + "\ntime: about " + clock_text(unit) + " for a checkpoint, " +
         clock_text(rounds * unit) + " in all, at the rates that headspan plan takes by default\n";
}

}  // namespace

std::string describe_run(const Job& job, const DryRun& run, const Log& log) {
  std::string text = "study: " + std::to_string(run.finished) + " finished, " +
                     std::to_string(run.open.size()) + " to compute on " + std::to_string(run.ranks) +
                     (run.ranks == 1 ? " rank\n" : " ranks\n") + list_open(job, run.open);
  if (!run.open.empty() && run.open.front().kind == Unit::Kind::model) text += describe_costs(job, run, log);
  return text + "dry run: nothing was computed or written\n";
}

}  // namespace headspan
