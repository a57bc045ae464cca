// How many tokens a data-parallel row runs at once.
#pragma once

#include "app/job/job.h"
#include "app/run/process_layout.h"
#include "app/run/sample.h"

namespace headspan {

/// Tokens of a forward that are enough for products at full speed: on a processor, on a GPU.
constexpr std::int64_t kHostBatch = 1024, kGpuBatch = 8192;

/// run.batch_tokens, or for auto what suits the processor or GPU, but so that each of `rows` data-parallel
/// rows has work on `tokens`.
std::int64_t batch_tokens(const Job::Run& rule, std::int64_t tokens, std::int64_t rows, bool gpu);
std::int64_t batch_tokens(const Job::Run& rule, const Sample& sample, const ProcessLayout& team);

}  // namespace headspan
