#include "stats/regression/pairwise.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "base/checked.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/local_algebra.h"
#include "dist/threads.h"

namespace headspan {
namespace {

/// A fit that is sent to the rank of its target.
struct PairFit {
  std::int32_t target, source;
  double r2, r2_weighted, r2_heldout;
  std::int64_t status;
};

/// Returns how many numbers a PairSource is sent as: rank, pivot, whitener, moment.
std::int64_t record_length(std::int64_t d, bool has_moment) { return 2 + (has_moment ? 2 : 1) * d * d; }

void append_record(const PairSource& source, std::vector<double>& out) {
  out.push_back(static_cast<double>(source.rank));
  out.push_back(source.pivot);
  out.insert(out.end(), source.whitener.begin(), source.whitener.end());
  out.insert(out.end(), source.moment.begin(), source.moment.end());
}

PairSource read_record(const double* record, std::int64_t d, bool has_moment) {
  const double* whitener = record + 2;
  const double* moment = whitener + d * d;
  return {static_cast<std::int64_t>(record[0]), record[1], std::vector<double>(whitener, moment),
          has_moment ? std::vector<double>(moment, moment + d * d) : std::vector<double>()};
}

class Pairs {
 public:
  Pairs(const RegressionData& data, const PairSums& sums)
      : data_(data),
        sums_(sums),
        matrix_(data.fit.matrix),
        grid_(matrix_.grid()),
        d_(data.layout.head_size),
        heads_(data.layout.heads()) {}

  PairTable compute() {
    PairTable table = empty_table();
    if (data_.rules.too_few(data_.layout.source_size())) {
      mark_too_few(table);
      return table;
    }
    share_sources(table);
    collect(fit_all(), table);
    return table;
  }

 private:
  PairTable empty_table() const {
    PairTable table;
    table.targets = data_.layout.targets_of(grid_.comm().size(), grid_.comm().rank());
    const std::size_t n = to_size(table.targets.count * heads_);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    table.r2.assign(n, nan);
    table.r2_weighted.assign(n, nan);
    table.r2_heldout.assign(n, nan);
    table.status.assign(n, kNotComputed);
    table.rank.assign(to_size(heads_), 0);
    table.pivot.assign(to_size(heads_), nan);
    return table;
  }

  void mark_too_few(PairTable& table) const {
    for (std::int64_t t = 0; t < table.targets.count; ++t)
      for (std::int64_t s = 0; s < heads_; ++s)
        if (data_.layout.predicts(s, table.targets.first + t))
          table.status[to_size(t * heads_ + s)] = kTooFewTokens;
  }

  /// Return the process row and column of a head's diagonal tile.
  int row_of(std::int64_t head) const { return matrix_.rows().owner(head * d_); }
  int column_of(std::int64_t head) const { return matrix_.columns().owner(head * d_); }

  const double* diagonal_tile(const Matrix& matrix, std::int64_t head) const {
    return matrix.at(matrix.rows().local(head * d_), matrix.columns().local(head * d_));
  }

  PairSource factor_source(std::int64_t head) const {
    const Factor factor = factor_regressors(diagonal_tile(matrix_, head), d_, matrix_.leading(),
                                            &data_.sst[to_size(head * d_)], data_.rules.pivot_tolerance(d_));
    PairSource source{factor.rank, factor.pivot, whitener(factor, d_), {}};
    source.whitener.resize(to_size(d_ * d_), 0.0);
    if (!data_.heldout) return source;
    const Matrix& moment = data_.heldout->matrix;
    const double* u = source.whitener.data();
    const std::vector<double> mu =
        gemm("N", "N", d_, d_, d_, diagonal_tile(moment, head), moment.leading(), u, d_);
    source.moment = gemm("T", "N", d_, d_, d_, u, d_, mu.data(), d_);
    return source;
  }

  /// Factors the diagonal tiles of this rank and sends each factor along its process row and column; rank and
  /// pivot go to all ranks. Collective.
  void share_sources(PairTable& table) {
    std::vector<std::vector<double>> send(to_size(grid_.comm().size()));
    std::vector<std::int64_t> mine;
    for (std::int64_t h = 0; h < heads_; ++h)
      if (row_of(h) == grid_.row() && column_of(h) == grid_.column()) mine.push_back(h);
    std::vector<PairSource> factored(mine.size());
    {
      const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
      for (std::size_t k = 0; k < mine.size(); ++k) factored[k] = factor_source(mine[k]);
    }
    std::fill(table.pivot.begin(), table.pivot.end(), 0.0);
    for (std::size_t k = 0; k < mine.size(); ++k) {
      for (int r = 0; r < grid_.comm().size(); ++r)
        if (r / grid_.columns() == grid_.row() || r % grid_.columns() == grid_.column()) {
          send[to_size(r)].push_back(static_cast<double>(mine[k]));
          append_record(factored[k], send[to_size(r)]);
        }
      table.rank[to_size(mine[k])] = static_cast<int>(factored[k].rank);
      table.pivot[to_size(mine[k])] = factored[k].pivot;
    }
    const bool has_moment = data_.heldout.has_value();
    for (const auto& part : grid_.comm().exchange(send))
      for (std::size_t at = 0; at < part.size(); at += to_size(record_length(d_, has_moment) + 1))
        sources_[static_cast<std::int64_t>(part[at])] = read_record(&part[at + 1], d_, has_moment);
    grid_.comm().sum(table.pivot.data(), heads_);
    grid_.comm().sum(table.rank.data(), heads_);
  }

  /// Fits all tiles that this rank stores; returns the fits by the rank of their target. Collective.
  std::vector<std::vector<PairFit>> fit_all() const {
    const int ranks = grid_.comm().size();
    std::vector<std::vector<PairFit>> send(to_size(ranks));
    std::mutex adding;
    const auto sink = [&](std::int64_t target, std::int64_t source, const double* gains,
                          const double* errors) {
      if (!data_.layout.predicts(source, target)) return;
      const PairFit fit = score(target, source, gains, errors);
      const std::lock_guard<std::mutex> lock(adding);
      send[to_size(data_.layout.owner_of_target(ranks, target))].push_back(fit);
    };
    agree(grid_.comm(), [&] { sums_(data_, sources_, sink); });
    return send;
  }

  PairFit score(std::int64_t target, std::int64_t source, const double* gains, const double* errors) const {
    const Score score =
        score_head(data_, target, gains, errors, sources_.at(source).rank < data_.layout.source_size());
    return {static_cast<std::int32_t>(target),
            static_cast<std::int32_t>(source),
            score.r2,
            score.r2_weighted,
            score.r2_heldout,
            score.status};
  }

  void collect(const std::vector<std::vector<PairFit>>& send, PairTable& table) const {
    for (const auto& part : grid_.comm().exchange(send))
      for (const PairFit& fit : part) {
        const std::size_t at = to_size((fit.target - table.targets.first) * heads_ + fit.source);
        table.r2[at] = fit.r2;
        table.r2_weighted[at] = fit.r2_weighted;
        table.r2_heldout[at] = fit.r2_heldout;
        table.status[at] = static_cast<std::uint8_t>(fit.status);
      }
  }

  const RegressionData& data_;
  const PairSums& sums_;
  const Matrix& matrix_;
  const Grid& grid_;
  std::int64_t d_;
  std::int64_t heads_;
  PairSources sources_;  // of the heads in this rank's process row and column
};

}  // namespace

PairTable all_pairs(const RegressionData& data, const PairSums& sums) { return Pairs(data, sums).compute(); }

}  // namespace headspan
