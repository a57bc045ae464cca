#include "app/plan/plan.h"

#include <cstdio>

#include "app/plan/memory_cost.h"
#include "app/plan/performance.h"
#include "app/plan/plan_report.h"
#include "app/plan/planned_study.h"
#include "base/printable.h"
#include "base/process/memory.h"
#include "dist/comm/agreement.h"

namespace headspan {
namespace {

/// Returns what stays in host memory when the model runs and the Grams are summed on GPUs.
MemoryCost beside_gpus(MemoryCost memory) {
  constexpr double kPinned = 2 * 512.0 * (1 << 20);  // two stripes in transfer (device/device_gram.cpp)
  memory.weights = memory.forward = memory.waiting = 0;
  memory.exchange = kPinned;
  return memory;
}

}  // namespace

int plan(const Job& job, const PlanRequest& request, const Comm& world, const Log& log) {
  agree(world, [&] {
    if (!world.is_root()) return;
    const PlannedStudy planned = plan_study(job, request.ranks, log);
    MemoryCost memory =
        memory_cost(job, planned.config, planned.dtype, planned.tokens, planned.group, planned.beside());
    if (!planned.passes.empty()) memory = beside_gpus(memory);
    memory.program = idle_process_bytes();
    const PlanReport report =
        report_plan(job, planned, memory, request.rates.empty() ? Rates() : read_rates(request.rates));
    std::fputs((request.json ? report.dump(1) + "\n" : format_plan(report)).c_str(), stdout);
    if (report["fits"] == false) {
      char needed[32];
      std::snprintf(needed, sizeof needed, "%.2f", memory.peak() / (1 << 30));
      throw InputError("", "run.memory_gib", std::to_string(*job.run.memory_gib),
                       std::string("is not enough: the fullest rank needs ") + needed + " GiB",
                       "use more ranks in a group, or fewer streams at a time");
    }
  });
  if (!job.file.empty())
    log.next("mpirun -n " + std::to_string(request.ranks) + " headspan study " + shell_word(job.file));
  return 0;
}

}  // namespace headspan
