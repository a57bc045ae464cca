#include "app/sources/overlap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "base/checked.h"
#include "base/progress.h"
#include "base/range.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/redistribution.h"
#include "stats/gram/gram.h"
#include "stats/layers/head_angles.h"
#include "stats/layers/overlap.h"

namespace headspan {
namespace {

constexpr double kSmallestForGram = 1e-6;  // the smallest tolerance for which eigenvalues of W^T W are used

/// Returns the relative tolerance that a word of the job gives; none for "paper".
std::optional<double> relative_tolerance(const std::string& word) {
  if (word == "paper") return std::nullopt;
  return std::stod(word);
}

/// One projection of one layer.
struct LayerProjection {
  std::size_t projection;  ///< index in the request
  std::int64_t layer;
};

class Overlap {
 public:
  Overlap(const Job::Overlap& request, const Projections& projections, const Comm& group,
          const OverlapShares& shares)
      : projections_(projections),
        group_(group),
        shares_(shares),
        streams_(request.projections),
        most_columns_(most_columns(request, projections)) {
    if (request.effective != GainChoice::effective) gains_.push_back(GainChoice::raw);
    if (request.effective != GainChoice::raw) gains_.push_back(GainChoice::effective);
    for (const GainChoice gain : gains_) table_.effective.push_back(word_of(gain_words(), gain));
    table_.tolerances = request.tolerances;
    table_.layers = projections.layers();
    table_.alignment_null =
        static_cast<double>(projections.head_size()) / static_cast<double>(projections.hidden_size());
    for (const Stream stream : streams_) {
      table_.projections.push_back(word_of(stream_words(), stream));
      table_.heads = std::max(table_.heads, projections.heads(stream));
      table_.values = std::max(table_.values, std::min(projections.hidden_size(), columns_of(stream)));
    }
    for (const std::string& tolerance : table_.tolerances)
      if (relative_tolerance(tolerance).value_or(1) < kSmallestForGram) table_.from_gram = false;
  }

  /// Returns the number of projections, each of one layer.
  std::int64_t count() const { return static_cast<std::int64_t>(streams_.size()) * table_.layers; }

  OverlapTable compute(Progress& progress) {
    make_tables();
    const int subgroups = subgroup_count();
    const int number = range_owner(group_.size(), subgroups, group_.rank());
    const Comm subgroup = group_.split(number, group_.rank());
    const GridShape shape = squarest_grid(subgroup.size());
    const Grid grid(subgroup, to_int(shape.rows), to_int(shape.columns)), line(subgroup, 1, subgroup.size());
    std::exception_ptr failure;
    for (std::int64_t i = number; i < count() && !failure; i += subgroups) {
      try {
        add({to_size(i / table_.layers), i % table_.layers}, grid, line);
      } catch (const AgreedError&) {
        failure = std::current_exception();
      }
      progress.advance(number == 0 ? std::min<std::int64_t>(subgroups, count() - i) : 0);
    }
    agree(group_, [&] {
      if (failure) std::rethrow_exception(failure);
    });
    for (std::vector<double>* values : {&table_.rank_sum, &table_.rank_joint, &table_.overlap_dimension,
                                        &table_.singular_values, &table_.alignment}) {
      if (!subgroup.is_root()) std::fill(values->begin(), values->end(), 0.0);
      group_.sum(values->data(), static_cast<std::int64_t>(values->size()));
    }
    return std::move(table_);
  }

 private:
  std::int64_t columns_of(Stream stream) const {
    return projections_.heads(stream) * projections_.head_size();
  }

  int subgroup_count() const {
    if (shares_.eigenvalues) return group_.size();
    return to_int(
        overlap_subgroups(most_columns_ * projections_.hidden_size(), count(), group_.size(), shares_.large));
  }

  void make_tables() {
    const auto p = static_cast<std::int64_t>(table_.projections.size());
    const auto e = static_cast<std::int64_t>(table_.effective.size());
    const auto t = static_cast<std::int64_t>(table_.tolerances.size());
    table_.rank_sum.resize(to_size(p * e * t * table_.layers));
    table_.singular_values.resize(to_size(p * e * table_.layers * table_.values));
    table_.alignment.resize(to_size(p * table_.layers * table_.heads * table_.heads));
    table_.overlap_dimension = table_.rank_joint = table_.rank_sum;
  }

  /// Returns W, [hidden, columns]. Each rank reads a contiguous range of its columns. Collective over the
  /// subgroup.
  Matrix read(const LayerProjection& item, const Grid& grid, const Grid& line) const {
    const Stream stream = streams_[item.projection];
    const std::int64_t rows = projections_.hidden_size(), columns = columns_of(stream);
    Matrix w(grid, rows, columns,
             gram_block(grid.shape(), projections_.heads(stream), projections_.head_size()));
    const auto fill = [&](Matrix& share) {
      agree(line.comm(), [&] {
        if (share.local_columns() == 0) return;
        const std::vector<double> values = projections_.columns(
            item.layer, stream, share.columns().global(line.column(), 0), share.local_columns());
        std::copy(values.begin(), values.end(), share.data());
      });
    };
    if (line.columns() == 1) {
      fill(w);
      return w;
    }
    Matrix share(line, rows, columns,
                 std::max<std::int64_t>(1, (columns + line.columns() - 1) / line.columns()));
    fill(share);
    copy_submatrix(share, 0, 0, w);
    return w;
  }

  /// Fills in the tables for one projection of one layer. Collective over the subgroup.
  void add(const LayerProjection& item, const Grid& grid, const Grid& line) {
    const Stream stream = streams_[item.projection];
    Matrix w = read(item, grid, line);
    const int exponent = bring_into_range(w);
    Matrix gram(grid, w.columns().size, w.columns().size, w.columns().block);
    multiply_transposed(w, gram);
    add_alignment(item, gram);
    const std::vector<double> ones(to_size(columns_of(stream)), 1.0);
    std::optional<ProjectionSpectrum> raw;
    for (std::size_t e = 0; e < gains_.size(); ++e) {
      const bool with_gain = gains_[e] == GainChoice::effective && projections_.has_gain(stream);
      if (!with_gain && !raw) raw = spectrum(w, gram, ones);
      std::vector<double> gain;
      if (with_gain) agree(line.comm(), [&] { gain = projections_.gain(item.layer, stream); });
      add_spectrum(item, e, with_gain ? spectrum(w, gram, gain) : *raw, exponent);
    }
  }

  ProjectionSpectrum spectrum(const Matrix& w, const Matrix& gram, const std::vector<double>& gain) const {
    const std::int64_t d = projections_.head_size();
    if (!table_.from_gram) return spectrum_of_weights(w, gain, d);
    if (!shares_.eigenvalues) return spectrum_of_gram(gram, gain, projections_.hidden_size(), d);
    ProjectionSpectrum found;  // by this rank alone
    agree(gram.grid().comm(),
          [&] { found = spectrum_of_gram(gram, gain, projections_.hidden_size(), d, shares_.eigenvalues); });
    return found;
  }

  /// Fills in ranks and singular values. spectrum: of W / 2^exponent.
  void add_spectrum(const LayerProjection& item, std::size_t effective, const ProjectionSpectrum& spectrum,
                    int exponent) {
    const std::size_t axis = item.projection * table_.effective.size() + effective;
    for (std::size_t t = 0; t < table_.tolerances.size(); ++t) {
      const OverlapRanks ranks = overlap_ranks(spectrum, projections_.hidden_size(), projections_.head_size(),
                                               relative_tolerance(table_.tolerances[t]));
      const std::size_t i =
          (axis * table_.tolerances.size() + t) * to_size(table_.layers) + to_size(item.layer);
      table_.rank_sum[i] = static_cast<double>(ranks.sum);
      table_.rank_joint[i] = static_cast<double>(ranks.joint);
      table_.overlap_dimension[i] = static_cast<double>(ranks.overlap_dimension());
    }
    auto out = table_.singular_values.begin() +
               (static_cast<std::int64_t>(axis) * table_.layers + item.layer) * table_.values;
    std::fill_n(out, table_.values, std::numeric_limits<double>::quiet_NaN());
    std::transform(spectrum.joint.begin(), spectrum.joint.end(), out,
                   [&](double value) { return std::ldexp(value, exponent); });
  }

  /// Fills in the mean squared cosine of the principal angles of every two heads, ||Q_i^T Q_j||_F^2 / d.
  void add_alignment(const LayerProjection& item, const Matrix& gram) {
    const Stream stream = streams_[item.projection];
    const std::int64_t heads = projections_.heads(stream), d = projections_.head_size();
    HeadLayout layout{d, std::vector<std::int64_t>(to_size(heads), 0), {}, projections_.hidden_size()};
    const HeadAngles angles = head_angles(gram, layout, diagonal(gram),
                                          static_cast<double>(d) * std::numeric_limits<double>::epsilon());
    for (std::int64_t r = 0; r < table_.heads; ++r)
      for (std::int64_t t = 0; t < table_.heads; ++t)
        table_.alignment[to_size(
            ((static_cast<std::int64_t>(item.projection) * table_.layers + item.layer) * table_.heads + r) *
                table_.heads +
            t)] = r < heads && t < heads ? angles.cosines[to_size(r * heads + t)] / static_cast<double>(d)
                                         : std::numeric_limits<double>::quiet_NaN();
  }

  const Projections& projections_;
  const Comm& group_;
  OverlapShares shares_;
  std::vector<Stream> streams_;
  std::int64_t most_columns_;
  std::vector<GainChoice> gains_;  // raw, effective, or both in this order
  OverlapTable table_;
};

}  // namespace

std::int64_t most_columns(const Job::Overlap& request, const Projections& projections) {
  std::int64_t columns = 0;
  for (const Stream stream : request.projections)
    columns = std::max(columns, projections.heads(stream) * projections.head_size());
  return columns;
}

OverlapTable compute_overlap(const Job::Overlap& request, const Projections& projections, const Comm& group,
                             const Log& log, const std::string& unit, const OverlapShares& shares) {
  Overlap overlap(request, projections, group, shares);
  Progress progress(log, "overlap", "projections", overlap.count(), {{"unit", unit}});
  return overlap.compute(progress);
}

}  // namespace headspan
