#include "stats/pairwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/checked.h"
#include "dist/scalapack.h"
#include "dist/threads.h"

namespace headspan {
namespace {

std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

/// One fit on its way to the rank that keeps its target.
struct PairFit {
  std::int32_t target, source;
  double r2, r2_weighted, r2_heldout;
  std::int64_t status;
};

/// What a source head's diagonal tiles say. With them the fit of any target is products alone: X = G_ts U and
/// the held-out errors diag(M_tt - 2 X (M_ts U)^T + X S X^T).
struct Source {
  std::int64_t rank = 0;
  double pivot = 0;
  std::vector<double> whitener;  // U = D P L^-T, [d, d], columns beyond the rank 0
  std::vector<double> moment;    // S = U^T M_ss U, [d, d]; empty without a held-out part
};

/// The targets of one source whose tiles lie side by side in this rank's array: local rows below the source's
/// tile or local columns to the left of it.
struct TargetRun {
  std::int64_t source;
  bool in_column;  // the source is the tile's column and the targets its rows; else the other way round
  std::int64_t first, last;  // local rows or columns, whole heads
};

/// Numbers of a Source: rank, pivot, whitener, moment.
std::int64_t record_length(std::int64_t d, bool has_moment) { return 2 + (has_moment ? 2 : 1) * d * d; }

void append_record(const Source& source, std::vector<double>& out) {
  out.push_back(static_cast<double>(source.rank));
  out.push_back(source.pivot);
  out.insert(out.end(), source.whitener.begin(), source.whitener.end());
  out.insert(out.end(), source.moment.begin(), source.moment.end());
}

Source read_record(const double* record, std::int64_t d, bool has_moment) {
  const double* whitener = record + 2;
  const double* moment = whitener + d * d;
  return {static_cast<std::int64_t>(record[0]), record[1], std::vector<double>(whitener, moment),
          has_moment ? std::vector<double>(moment, moment + d * d) : std::vector<double>()};
}

/// op(a) b for b: [d, d]: [m, d]; a: [m, d], or [d, m] where transposed.
std::vector<double> times(const double* a, std::int64_t lda, bool transposed, std::int64_t m, std::int64_t d,
                          const std::vector<double>& b) {
  std::vector<double> c(to_size(m * d));
  const int rows = to_int(m), n = to_int(d), ld = to_int(lda);
  const double one = 1, zero = 0;
  dgemm_(transposed ? "T" : "N", "N", &rows, &n, &n, &one, a, &ld, b.data(), &n, &zero, c.data(), &rows);
  return c;
}

class Pairs {
 public:
  explicit Pairs(const RegressionData& data)
      : data_(data),
        matrix_(data.fit.matrix),
        grid_(matrix_.grid()),
        d_(data.layout.head_size),
        heads_(data.layout.heads()) {}

  PairTable compute() {
    PairTable table = empty_table();
    if (data_.rules.too_few(d_)) {
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
    table.targets = slab_of(heads_, grid_.comm().size(), grid_.comm().rank());
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
        if (table.targets.first + t != s) table.status[to_size(t * heads_ + s)] = kTooFewTokens;
  }

  /// The process row and column of a head's diagonal tile.
  int row_of(std::int64_t head) const { return matrix_.rows().owner(head * d_); }
  int column_of(std::int64_t head) const { return matrix_.columns().owner(head * d_); }

  const double* diagonal_tile(const Matrix& matrix, std::int64_t head) const {
    return matrix.at(matrix.rows().local(head * d_), matrix.columns().local(head * d_));
  }

  Source factor_source(std::int64_t head) const {
    const Factor factor = factor_regressors(diagonal_tile(matrix_, head), d_, matrix_.leading(),
                                            &data_.sst[to_size(head * d_)], data_.rules.pivot_tolerance(d_));
    Source source{factor.rank, factor.pivot, whitener(factor, d_), {}};
    source.whitener.resize(to_size(d_ * d_), 0.0);
    if (!data_.heldout) return source;
    const Matrix& moment = data_.heldout->matrix;
    const std::vector<double> half =
        times(diagonal_tile(moment, head), moment.leading(), false, d_, d_, source.whitener);
    source.moment = times(source.whitener.data(), d_, true, d_, d_, half);
    return source;
  }

  /// Factors the diagonal tiles of this rank and sends each along its process row and column.
  void share_sources(PairTable& table) {
    std::vector<std::vector<double>> send(to_size(grid_.comm().size()));
    std::vector<std::int64_t> mine;
    for (std::int64_t h = 0; h < heads_; ++h)
      if (row_of(h) == grid_.row() && column_of(h) == grid_.column()) mine.push_back(h);
    std::vector<Source> factored(mine.size());
    {
      const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
      for (std::size_t k = 0; k < mine.size(); ++k) factored[k] = factor_source(mine[k]);
    }
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
    replicate(table, mine);
  }

  /// Rank and pivot of every source on every rank.
  void replicate(PairTable& table, const std::vector<std::int64_t>& mine) const {
    std::vector<double> pivots(to_size(heads_), 0.0);
    for (const std::int64_t h : mine) pivots[to_size(h)] = table.pivot[to_size(h)];
    table.pivot = pivots;
    grid_.comm().sum(table.pivot.data(), heads_);
    grid_.comm().sum(table.rank.data(), heads_);
  }

  std::vector<TargetRun> runs() const {
    constexpr std::int64_t kHeads =
        16;  // targets of one piece of work: fits a core's cache, spreads over threads
    std::vector<TargetRun> result;
    const auto cut = [&](std::int64_t source, bool in_column, std::int64_t first, std::int64_t last) {
      for (std::int64_t i = first; i < last; i += kHeads * d_)
        result.push_back({source, in_column, i, std::min(last, i + kHeads * d_)});
    };
    for (std::int64_t s = 0; s < heads_; ++s) {
      if (column_of(s) == grid_.column())
        cut(s, true, matrix_.rows().local_before(grid_.row(), (s + 1) * d_), matrix_.local_rows());
      if (row_of(s) == grid_.row()) cut(s, false, 0, matrix_.columns().local_before(grid_.column(), s * d_));
    }
    return result;
  }

  /// Z_ts b for the run's targets, Z: `matrix`.
  std::vector<double> run_times(const Matrix& matrix, const TargetRun& run,
                                const std::vector<double>& b) const {
    const double* tiles = run.in_column ? matrix.at(run.first, matrix.columns().local(run.source * d_))
                                        : matrix.at(matrix.rows().local(run.source * d_), run.first);
    return times(tiles, matrix.leading(), !run.in_column, run.last - run.first, d_, b);
  }

  /// The held-out errors of the run's targets from X: [m, d].
  std::vector<double> errors_of(const TargetRun& run, const Source& source,
                                const std::vector<double>& x) const {
    const BlockCyclic& axis = run.in_column ? matrix_.rows() : matrix_.columns();
    const int part = run.in_column ? grid_.row() : grid_.column();
    const std::int64_t m = run.last - run.first;
    const std::vector<double> cross = run_times(data_.heldout->matrix, run, source.whitener);
    const std::vector<double> product = times(x.data(), m, false, m, d_, source.moment);
    std::vector<double> errors;
    for (std::int64_t j = 0; j < m; ++j)
      errors.push_back(data_.moment_diagonal[to_size(axis.global(part, run.first + j))]);
    for (std::size_t i = 0; i < x.size(); i += to_size(m))
      for (std::size_t j = 0; j < to_size(m); ++j)
        errors[j] += x[i + j] * (product[i + j] - 2 * cross[i + j]);
    return errors;
  }

  void fit_run(const TargetRun& run, std::vector<PairFit>& fits) const {
    const Source& source = sources_.at(run.source);
    const BlockCyclic& axis = run.in_column ? matrix_.rows() : matrix_.columns();
    const int part = run.in_column ? grid_.row() : grid_.column();
    const std::int64_t m = run.last - run.first;
    const std::vector<double> x = run_times(matrix_, run, source.whitener);
    const std::vector<double> gained = explained(x, m);
    std::vector<double> errors;
    if (data_.heldout) errors = errors_of(run, source, x);
    for (std::int64_t j = 0; j < m; j += d_) {
      const std::int64_t column = axis.global(part, run.first + j);
      const Score score =
          score_fit(data_.rules, d_, &gained[to_size(j)], &data_.sst[to_size(column)],
                    data_.heldout ? &errors[to_size(j)] : nullptr,
                    data_.heldout ? &data_.sst_heldout[to_size(column)] : nullptr, source.rank < d_);
      fits.push_back({static_cast<std::int32_t>(column / d_), static_cast<std::int32_t>(run.source), score.r2,
                      score.r2_weighted, score.r2_heldout, score.status});
    }
  }

  /// The fits of all tiles that this rank stores, by the rank that keeps the target.
  std::vector<std::vector<PairFit>> fit_all() const {
    const std::vector<TargetRun> work = runs();
    std::vector<std::vector<PairFit>> fits(work.size());
    {
      const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
      for (std::size_t k = 0; k < work.size(); ++k) fit_run(work[k], fits[k]);
    }
    const int ranks = grid_.comm().size();
    std::vector<std::vector<PairFit>> send(to_size(ranks));
    for (const auto& part : fits)
      for (const PairFit& fit : part) send[to_size(slab_owner(heads_, ranks, fit.target))].push_back(fit);
    return send;
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
  const Matrix& matrix_;
  const Grid& grid_;
  std::int64_t d_;
  std::int64_t heads_;
  std::map<std::int64_t, Source> sources_;  // of the heads in this rank's process row and column
};

}  // namespace

PairTable all_pairs(const RegressionData& data) { return Pairs(data).compute(); }

}  // namespace headspan
