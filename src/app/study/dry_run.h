// What study --dry-run prints: what a study would compute, where it would write, and what that would take.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/job/job.h"
#include "app/job/unit.h"
#include "base/log.h"

namespace headspan {

/// What a study found out before its ranks begin to work.
struct DryRun {
  const std::vector<Unit>& open;  ///< units to be computed
  std::int64_t finished = 0;      ///< units that are not
  std::int64_t ranks = 1;
  bool on_gpus = false;
  double memory = 0;  ///< bytes that a rank may use, of its GPU if on_gpus
};

/// Returns complete lines. Memory and time, which are those of headspan plan, are left out for units that run
/// no model. Throws InputError. One rank.
std::string describe_run(const Job& job, const DryRun& run, const Log& log);

}  // namespace headspan
