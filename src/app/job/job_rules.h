// What follows from a job's keys: rules that several parts of a run share. Not what a key may hold
// (app/job/job_options.h) or which keys contradict each other (app/job/job_file.h).
#pragma once

#include "app/job/job.h"
#include "stats/regression/regression.h"

namespace headspan {

/// The rules of the fits for values and products of these precisions.
FitRules fit_rules(PredictMode mode, Dtype forward_dtype, Precision precision);

/// Whether a study saves, beside the Grams, what attention does with keys and values: where both are captured
/// as a cache holds them. A model runs its last layer's whole block for that.
bool saves_attention(const Job& job);

/// Throws InputError where predict.references or predict.pool is above its default, which any model may have,
/// and above `heads`, the most of a stream.
void check_references(const Job::Predict& predict, std::int64_t heads);

/// Likewise compress.references, where the algorithm asks for it, and the heads that a target can have as
/// references in a stream of `layers` layers of `heads` heads.
void check_references(const Job::Compress& compress, std::int64_t layers, std::int64_t heads);

}  // namespace headspan
