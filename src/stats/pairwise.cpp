#include "stats/pairwise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

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

/// What a source head's diagonal tile says: its factor, and its own block of the held-out second moment.
struct Source {
  Factor factor;
  std::vector<double> moment;  // [d, d]; empty without a held-out part
};

/// The targets of one source whose tiles lie side by side in this rank's array: local rows below the source's
/// tile or local columns to the left of it.
struct TargetRun {
  std::int64_t source;
  bool in_column;  // the source is the tile's column and the targets its rows; else the other way round
  std::int64_t first, last;  // local rows or columns, whole heads
};

/// Numbers of a Source, in a fixed length: rank, pivot, order[d], scale[d], lower[d * d], moment[d * d].
std::int64_t record_length(std::int64_t d) { return 2 + 2 * d + 2 * d * d; }

void append_record(const Source& source, std::int64_t d, std::vector<double>& out) {
  const std::size_t start = out.size();
  out.resize(start + to_size(record_length(d)), 0.0);
  double* record = out.data() + start;
  record[0] = static_cast<double>(source.factor.rank);
  record[1] = source.factor.pivot;
  std::copy(source.factor.order.begin(), source.factor.order.end(), record + 2);
  std::copy(source.factor.scale.begin(), source.factor.scale.end(), record + 2 + d);
  std::copy(source.factor.lower.begin(), source.factor.lower.end(), record + 2 + 2 * d);
  std::copy(source.moment.begin(), source.moment.end(), record + 2 + 2 * d + d * d);
}

Source read_record(const double* record, std::int64_t d, bool has_moment) {
  Source source;
  source.factor.rank = static_cast<std::int64_t>(record[0]);
  source.factor.pivot = record[1];
  const std::int64_t rank = source.factor.rank;
  for (std::int64_t i = 0; i < rank; ++i) source.factor.order.push_back(static_cast<int>(record[2 + i]));
  source.factor.scale.assign(record + 2 + d, record + 2 + d + rank);
  source.factor.lower.assign(record + 2 + 2 * d, record + 2 + 2 * d + rank * rank);
  if (has_moment) source.moment.assign(record + 2 + 2 * d + d * d, record + 2 + 2 * d + 2 * d * d);
  return source;
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
    Source source;
    source.factor = factor_regressors(diagonal_tile(matrix_, head), d_, matrix_.leading(),
                                      &data_.sst[to_size(head * d_)], data_.rules.pivot_tolerance(d_));
    if (!data_.heldout) return source;
    const Matrix& moment = data_.heldout->matrix;
    const double* tile = diagonal_tile(moment, head);
    for (std::int64_t j = 0; j < d_; ++j)
      source.moment.insert(source.moment.end(), tile + j * moment.leading(),
                           tile + j * moment.leading() + d_);
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
          append_record(factored[k], d_, send[to_size(r)]);
        }
      table.rank[to_size(mine[k])] = static_cast<int>(factored[k].factor.rank);
      table.pivot[to_size(mine[k])] = factored[k].factor.pivot;
    }
    for (const auto& part : grid_.comm().exchange(send))
      for (std::size_t at = 0; at < part.size(); at += to_size(record_length(d_) + 1))
        sources_[static_cast<std::int64_t>(part[at])] =
            read_record(&part[at + 1], d_, data_.heldout.has_value());
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

  /// G_st of the run's targets, [d, targets' columns], the source's coordinates first.
  std::vector<double> cross_block(const Matrix& matrix, const TargetRun& run) const {
    const std::int64_t m = run.last - run.first;
    std::vector<double> block(to_size(d_ * m));
    const std::int64_t at =
        run.in_column ? matrix.columns().local(run.source * d_) : matrix.rows().local(run.source * d_);
    for (std::int64_t j = 0; j < m; ++j)
      for (std::int64_t i = 0; i < d_; ++i)
        block[to_size(i + j * d_)] =
            run.in_column ? *matrix.at(run.first + j, at + i) : *matrix.at(at + i, run.first + j);
    return block;
  }

  void fit_run(const TargetRun& run, std::vector<PairFit>& fits) const {
    const Source& source = sources_.at(run.source);
    const BlockCyclic& axis = run.in_column ? matrix_.rows() : matrix_.columns();
    const int part = run.in_column ? grid_.row() : grid_.column();
    const std::int64_t m = run.last - run.first, rank = source.factor.rank;
    std::vector<double> x = whiten(source.factor, cross_block(matrix_, run).data(), d_, m);
    const std::vector<double> gained = explained(x, rank, m);
    std::vector<double> errors;
    if (data_.heldout) {
      std::vector<double> moment_diagonal;
      for (std::int64_t j = 0; j < m; ++j)
        moment_diagonal.push_back(data_.moment_diagonal[to_size(axis.global(part, run.first + j))]);
      errors =
          heldout_errors(source.factor, solve_maps(source.factor, std::move(x), m), source.moment.data(), d_,
                         cross_block(data_.heldout->matrix, run).data(), d_, moment_diagonal.data(), m);
    }
    for (std::int64_t j = 0; j < m; j += d_) {
      const std::int64_t column = axis.global(part, run.first + j);
      const Score score = score_fit(data_.rules, d_, &gained[to_size(j)], &data_.sst[to_size(column)],
                                    data_.heldout ? &errors[to_size(j)] : nullptr,
                                    data_.heldout ? &data_.sst_heldout[to_size(column)] : nullptr, rank < d_);
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
