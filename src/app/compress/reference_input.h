// What every method of choosing references works on: the Grams and metrics of the streams that are
// compressed, and how many heads may be kept.
#pragma once

#include <map>
#include <vector>

#include "app/job/job.h"
#include "stats/compression/metric_selection.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// Streams are numbered in the order of the job.
class ReferenceInput {
 public:
  /// Keeps references to all three. metrics: [heads, d, d] by stream.
  ReferenceInput(const Job::Compress& rule, const std::map<Stream, RegressionData>& data,
                 const std::map<Stream, std::vector<double>>& metrics);

  const Job::Compress& rule() const { return rule_; }
  std::int64_t references() const { return rule_.references; }
  std::int64_t budget() const { return budget_; }  ///< heads that may be kept, over all streams
  const HeadLayout& layout() const { return data_.front()->layout; }  ///< of every stream
  const Comm& comm() const { return data_.front()->comm(); }

  std::size_t streams() const { return data_.size(); }
  const RegressionData& data(std::size_t stream) const { return *data_[stream]; }
  /// Returns the metric of a head, [d, d], followed by those of the next heads.
  const double* metric(std::size_t stream, std::int64_t head) const;

  /// Returns the problem of choosing references of the last of `heads` among the others. moments: of these
  /// heads, dense.
  MetricProblem problem(std::size_t stream, std::vector<double> moments,
                        const std::vector<std::int64_t>& heads) const;

  /// Throws AgreedError, because at least `needed` heads have to be kept.
  [[noreturn]] void refuse_budget(std::int64_t needed) const;

 private:
  double heads() const { return static_cast<double>(layout().heads()) * static_cast<double>(streams()); }

  const Job::Compress& rule_;
  std::vector<const RegressionData*> data_;
  std::vector<const std::vector<double>*> metrics_;
  std::int64_t budget_ = 0;
};

/// Gives every rank all lists. Each list is on at most one rank, and empty on the others. Collective over
/// comm.
void share_lists(const Comm& comm, std::vector<std::vector<std::int64_t>>& lists);

}  // namespace headspan
