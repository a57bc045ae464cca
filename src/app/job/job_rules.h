// What follows from a job's keys and is needed by several parts of a run. Not which values a key may have
// (app/job/job_options.h), nor which keys contradict each other (app/job/job_file.h).
#pragma once

#include "app/job/job.h"
#include "stats/regression/regression.h"

namespace headspan {

/// Returns how fits are accepted and scored, for values of `forward_dtype` whose products are formed in
/// `precision`.
FitRules fit_rules(PredictMode mode, Dtype forward_dtype, Precision precision);

/// Returns what a saved state must agree with where predict.precision = auto: the products that were chosen
/// for values of `forward`, as a line "products NAME"; nothing for a job that names them.
std::string chosen_products(const Job::Predict& predict, Dtype forward);

/// The most tokens that attention.scores runs, besides the sample.
constexpr std::int64_t kMostScoredTokens = 5000;

/// Returns whether a study captures a stream.
bool captures(const Job::Predict& predict, Stream stream);

/// Returns whether a study saves, with the Grams, what attention does with keys and values. It does if it
/// saves Grams and captures both as a cache holds them. Its model then also runs the last layer's block.
bool saves_attention(const Job::Predict& predict, const Job::Output& output);

/// Throws InputError if predict.references or predict.pool exceeds both `heads`, the heads of the largest
/// stream, and its default, which is allowed for every model.
void check_references(const Job::Predict& predict, std::int64_t heads);

/// Returns how many of `all` columns or heads a plan may store that stores this share of them, a decimal such
/// as 0.29 whose double may be smaller: rounded down, except for that error.
std::int64_t stored_count(double stored, double all);

/// Throws InputError if compress.references, provided that the algorithm reads it, exceeds both its default
/// and the heads that can predict another in a stream of `layers` layers of `heads` heads.
void check_references(const Job::Compress& compress, std::int64_t layers, std::int64_t heads);

}  // namespace headspan
