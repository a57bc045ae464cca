// What every way to choose references works on: the Grams and metrics of the streams that are compressed, and
// how many heads may be kept.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "app/job/job.h"
#include "stats/compression/metric_selection.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// Streams are counted in the order of the job.
class ReferenceInput {
 public:
  /// Keeps references to all three.
  ReferenceInput(const Job::Compress& rule, const std::map<Stream, RegressionData>& data,
                 const std::map<Stream, std::vector<double>>& metrics);

  const Job::Compress& rule() const { return rule_; }
  std::int64_t references() const { return rule_.references; }
  std::int64_t budget() const { return budget_; }                     ///< heads that are kept, of all streams
  const HeadLayout& layout() const { return data_.front()->layout; }  ///< of any stream
  const Comm& comm() const { return data_.front()->comm(); }

  std::size_t streams() const { return data_.size(); }
  const RegressionData& data(std::size_t stream) const { return *data_[stream]; }
  /// [d, d] of this head and of each that follows in the stream.
  const double* metric(std::size_t stream, std::int64_t head) const;

  /// The choice of references of the last of `heads` among the others; moments: of these heads, dense.
  MetricProblem problem(std::size_t stream, std::vector<double> moments,
                        const std::vector<std::int64_t>& heads) const;

  /// Throws AgreedError: at least `least` heads have to be kept.
  [[noreturn]] void refuse_budget(std::int64_t least) const;

 private:
  double heads() const { return static_cast<double>(layout().heads()) * static_cast<double>(streams()); }

  const Job::Compress& rule_;
  std::vector<const RegressionData*> data_;
  std::vector<const std::vector<double>*> metrics_;
  std::int64_t budget_ = 0;
};

}  // namespace headspan
