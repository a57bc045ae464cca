// Whether the memory of the ranks holds what a command keeps in it, before work begins. An estimate that is
// beyond it is told (memory_cost.h is right to a fifth); refused are Grams that alone are. Not GPUs, where
// passes over the tokens make do with what there is (passes.h).
#pragma once

#include <string>
#include <vector>

#include "app/job/job.h"
#include "app/job/unit.h"
#include "app/plan/job_sizes.h"

namespace headspan {

/// Bytes of the lower triangles of Grams of so many columns, `parts` of each: what is held for certain, by
/// all ranks together.
double gram_bytes(const std::vector<double>& columns, double parts);

/// Throws InputError where these are more than the memory of so many ranks, of which each has `memory` bytes.
/// `instead`: what would do besides more ranks, as ", or ..". Local.
void check_grams_fit(const Job& job, double bytes, std::int64_t ranks, double memory,
                     const std::string& instead = "");

/// For the studies of models on a group: of the one with the largest Grams. What the user should know, where
/// the estimate is beyond the memory of a rank; else empty. Throws InputError likewise. Reads the tokens.
/// Local.
std::string check_memory(const Job& job, const std::vector<Unit>& units, const GroupShape& group,
                         double memory);

}  // namespace headspan
