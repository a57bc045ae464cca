// The costs of a planned study, as JSON and as lines for people. The names are those of the lines.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "app/plan/memory_cost.h"
#include "app/plan/performance.h"
#include "app/plan/planned_study.h"

namespace headspan {

/// What plan reports; keys are in the order of the lines.
using PlanReport = nlohmann::ordered_json;

/// Returns the report of a study that takes `memory` on its fullest rank, on a machine of these rates. "plan"
/// says how the ranks are divided, "total" what it all comes to, "fits" whether it fits run.memory_gib (null
/// if that is not given); every other object has a figure for each part or phase.
PlanReport report_plan(const Job& job, const PlannedStudy& planned, const MemoryCost& memory,
                       const Rates& rates);

/// Returns complete lines: one for each object of the report, `NAME key=value ..`.
std::string format_plan(const PlanReport& report);

}  // namespace headspan
