#include "stats/regression/pair_sums.h"

#include <algorithm>

#include "base/checked.h"
#include "dist/matrix/local_algebra.h"
#include "dist/threads.h"

namespace headspan {
namespace {

/// Targets of one source whose tiles are neighbours in this rank's array: local rows below the source's
/// diagonal tile, or local columns to the left of it.
struct TargetRun {
  std::int64_t source;
  bool in_column;            // the source is the column of the tiles, the targets are rows; else vice versa
  std::int64_t first, last;  // local rows or columns, whole heads
};

class HostPairs {
 public:
  HostPairs(const RegressionData& data, const PairSources& sources)
      : data_(data),
        sources_(sources),
        matrix_(data.fit.matrix),
        grid_(matrix_.grid()),
        d_(data.layout.head_size) {}

  void compute(const PairSink& sink) const {
    const std::vector<TargetRun> work = runs();
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t k = 0; k < work.size(); ++k) sum_run(work[k], sink);
  }

 private:
  std::vector<TargetRun> runs() const {
    constexpr std::int64_t kHeads = 16;  // targets of a run: fit a core's cache, spread over threads
    std::vector<TargetRun> result;
    const auto cut = [&](std::int64_t source, bool in_column, std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; i += kHeads * d_)
        result.push_back({source, in_column, i, std::min(last, i + kHeads * d_)});
    };
    const auto row = [&](std::int64_t head) { return matrix_.rows().local_before(grid_.row(), head * d_); };
    const auto column = [&](std::int64_t head) {
      return matrix_.columns().local_before(grid_.column(), head * d_);
    };
    const Range sources = data_.layout.sources(), targets = data_.layout.targets();
    const std::int64_t last_target = targets.first + targets.count;
    for (std::int64_t s = sources.first; s < sources.first + sources.count; ++s) {
      if (matrix_.columns().owner(s * d_) == grid_.column())
        cut(s, true, row(std::max(s + 1, targets.first)), row(last_target));
      if (matrix_.rows().owner(s * d_) == grid_.row())
        cut(s, false, column(targets.first), column(std::min(s, last_target)));
    }
    return result;
  }

  /// Returns Z_ts b: [m, d] for the run's targets, Z being `matrix`; b: [d, d].
  std::vector<double> run_times(const Matrix& matrix, const TargetRun& run,
                                const std::vector<double>& b) const {
    const double* tiles = run.in_column ? matrix.at(run.first, matrix.columns().local(run.source * d_))
                                        : matrix.at(matrix.rows().local(run.source * d_), run.first);
    return gemm(run.in_column ? "N" : "T", "N", run.last - run.first, d_, d_, tiles, matrix.leading(),
                b.data(), d_);
  }

  /// Returns the column of the Gram that the run's j-th target coordinate is.
  std::size_t target_column(const TargetRun& run, std::int64_t j) const {
    return to_size(run.in_column ? matrix_.rows().global(grid_.row(), run.first + j)
                                 : matrix_.columns().global(grid_.column(), run.first + j));
  }

  /// Returns the held-out errors of the run's targets from X: [m, d].
  std::vector<double> errors_of(const TargetRun& run, const PairSource& source,
                                const std::vector<double>& x) const {
    const std::int64_t m = run.last - run.first;
    const std::vector<double> cross = run_times(data_.heldout->matrix, run, source.whitener);
    const std::vector<double> product = gemm("N", "N", m, d_, d_, x.data(), m, source.moment.data(), d_);
    std::vector<double> errors;
    for (std::int64_t j = 0; j < m; ++j) errors.push_back(data_.moment_diagonal[target_column(run, j)]);
    for (std::size_t i = 0; i < x.size(); i += to_size(m))
      for (std::size_t j = 0; j < to_size(m); ++j)
        errors[j] += x[i + j] * (product[i + j] - 2 * cross[i + j]);
    return errors;
  }

  void sum_run(const TargetRun& run, const PairSink& sink) const {
    const PairSource& source = sources_.at(run.source);
    const std::int64_t m = run.last - run.first;
    const std::vector<double> x = run_times(matrix_, run, source.whitener);
    const std::vector<double> gains = explained(x, m);
    std::vector<double> errors;
    if (data_.heldout) errors = errors_of(run, source, x);
    for (std::int64_t j = 0; j < m; j += d_)
      sink(static_cast<std::int64_t>(target_column(run, j)) / d_, run.source, &gains[to_size(j)],
           data_.heldout ? &errors[to_size(j)] : nullptr);
  }

  const RegressionData& data_;
  const PairSources& sources_;
  const Matrix& matrix_;
  const Grid& grid_;
  std::int64_t d_;
};

}  // namespace

void host_pair_sums(const RegressionData& data, const PairSources& sources, const PairSink& sink) {
  HostPairs(data, sources).compute(sink);
}

}  // namespace headspan
