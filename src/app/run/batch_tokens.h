// How many tokens a data-parallel row runs at once.
#pragma once

#include "app/job/job.h"
#include "app/run/process_layout.h"
#include "app/run/sample.h"

namespace headspan {

/// Tokens of a forward that suffice for products at full speed, on a CPU and on a GPU.
constexpr std::int64_t kHostBatch = 1024, kGpuBatch = 8192;

/// Returns run.batch_tokens; for auto kHostBatch or kGpuBatch, or fewer, so that each of `rows` data-parallel
/// rows gets some of the `tokens`.
std::int64_t batch_tokens(const Job::Run& rule, std::int64_t tokens, std::int64_t rows, bool gpu);
std::int64_t batch_tokens(const Job::Run& rule, const Sample& sample, const ProcessLayout& processes);

}  // namespace headspan
