// Checks before work begins that the memory of the ranks suffices. Grams that alone do not fit are refused;
// an estimate beyond the memory (memory_cost.h, within a fifth of measured runs) is only a warning. Not for
// GPUs, where a study takes as many passes over the tokens as it needs (passes.h).
#pragma once

#include <string>
#include <vector>

#include "app/job/job.h"
#include "app/job/unit.h"
#include "app/plan/job_sizes.h"

namespace headspan {

/// Returns the bytes of the lower triangles of Grams with these numbers of columns, each `parts` times (fit,
/// held out): what all ranks together hold at least.
double gram_bytes(const std::vector<double>& columns, double parts);

/// Throws InputError if `bytes` of Grams exceed the memory of the ranks, `memory` bytes each. `instead`: what
/// would help besides more ranks, as ", or ..". Local.
void check_grams_fit(const Job::Run& run, double bytes, std::int64_t ranks, double memory,
                     const std::string& instead = "");

/// Checks the unit with the largest Grams; all units are studies of models. Returns a warning if the estimate
/// exceeds the `memory` bytes of a rank, else an empty text. Throws InputError if the Grams alone do not fit.
/// Reads the tokens. Local.
std::string check_memory(const Job& job, const std::vector<Unit>& units, const GroupShape& group,
                         double memory);

}  // namespace headspan
