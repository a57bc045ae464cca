#include "app/compress/reference_input.h"

#include <cmath>
#include <cstdio>

#include "app/job/job_rules.h"
#include "base/checked.h"
#include "dist/comm/agreement.h"
#include "stats/regression/joint_fit.h"

namespace headspan {

ReferenceInput::ReferenceInput(const Job::Compress& rule, const std::map<Stream, RegressionData>& data,
                               const std::map<Stream, std::vector<double>>& metrics)
    : rule_(rule) {
  for (const Stream stream : rule.streams) {
    data_.push_back(&data.at(stream));
    metrics_.push_back(&metrics.at(stream));
  }
  budget_ = stored_count(rule.stored, heads());
}

const double* ReferenceInput::metric(std::size_t stream, std::int64_t head) const {
  const std::int64_t d = layout().head_size;
  return metrics_[stream]->data() + head * d * d;
}

MetricProblem ReferenceInput::problem(std::size_t stream, std::vector<double> moments,
                                      const std::vector<std::int64_t>& heads) const {
  const std::int64_t d = layout().head_size;
  const double* target_metric = metric(stream, heads.back());
  return {data(stream).rules, d, std::move(moments), gather(data(stream).sst, heads, d),
          std::vector<double>(target_metric, target_metric + d * d)};
}

void ReferenceInput::refuse_budget(std::int64_t needed) const {
  char share[32];
  std::snprintf(share, sizeof share, "%.4f", std::ceil(1e4 * static_cast<double>(needed) / heads()) / 1e4);
  throw AgreedError("compress.stored = " + std::to_string(rule_.stored) +
                        ": cannot be reached by dropping heads; " + std::string(share) + " can",
                    2);
}

void share_lists(const Comm& comm, std::vector<std::vector<std::int64_t>>& lists) {
  std::vector<std::int64_t> lengths, values;
  for (const auto& list : lists) lengths.push_back(static_cast<std::int64_t>(list.size()));
  comm.sum(lengths.data(), static_cast<std::int64_t>(lengths.size()));
  for (std::size_t i = 0; i < lists.size(); ++i) {
    lists[i].resize(to_size(lengths[i]), 0);
    values.insert(values.end(), lists[i].begin(), lists[i].end());
  }
  comm.sum(values.data(), static_cast<std::int64_t>(values.size()));
  auto first = values.begin();
  for (auto& list : lists) {
    const auto last = first + static_cast<std::ptrdiff_t>(list.size());
    list.assign(first, last);
    first = last;
  }
}

}  // namespace headspan
