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

constexpr double kLeastForGram = 1e-6;  // a tolerance that eigenvalues of W^T W resolve safely

/// Returns the relative tolerance that a word of the job stands for; nothing for "paper".
std::optional<double> relative_tolerance(const std::string& word) {
  if (word == "paper") return std::nullopt;
  return std::stod(word);
}

/// One projection of one layer.
struct Piece {
  std::size_t projection;
  std::int64_t layer;
};

class Overlap {
 public:
  Overlap(const Job::Overlap& request, const Projections& projections, const Comm& group, std::int64_t large)
      : projections_(projections), group_(group), large_(large) {
    streams_ = request.projections;
    table_.effective = request.effective == "both" ? Words{"raw", "effective"} : Words{request.effective};
    table_.tolerances = request.tolerances;
    table_.layers = projections.layers();
    table_.alignment_null =
        static_cast<double>(projections.head_size()) / static_cast<double>(projections.hidden_size());
    for (const Stream stream : streams_) {
      table_.projections.push_back(word_of(stream_words(), stream));
      table_.heads = std::max(table_.heads, projections.heads(stream));
      table_.values = std::max(table_.values, values_of(stream));
    }
    for (const std::string& tolerance : table_.tolerances)
      if (relative_tolerance(tolerance).value_or(1) < kLeastForGram) table_.from_gram = false;
  }

  OverlapTable compute(Progress& progress) {
    make_tables();
    const int teams = team_count();
    const int mine = range_owner(group_.size(), teams, group_.rank());
    const Comm team = group_.split(mine, group_.rank());
    const GridShape shape = squarest_grid(team.size());
    const Grid grid(team, to_int(shape.rows), to_int(shape.columns)), line(team, 1, team.size());
    std::exception_ptr failure;
    const std::vector<Piece> pieces = all_pieces();
    for (std::size_t i = to_size(mine); i < pieces.size() && !failure; i += to_size(teams)) {
      try {
        run(pieces[i], grid, line);
      } catch (const AgreedError&) {
        failure = std::current_exception();
      }
      progress.advance(mine == 0 ? std::min<std::int64_t>(teams, static_cast<std::int64_t>(pieces.size() - i))
                                 : 0);
    }
    agree(group_, [&] {
      if (failure) std::rethrow_exception(failure);
    });
    if (!team.is_root()) clear_tables();
    join_tables();
    return std::move(table_);
  }

  std::int64_t piece_count() const { return static_cast<std::int64_t>(all_pieces().size()); }

 private:
  std::int64_t columns_of(Stream stream) const {
    return projections_.heads(stream) * projections_.head_size();
  }
  std::int64_t values_of(Stream stream) const {
    return std::min(projections_.hidden_size(), columns_of(stream));
  }

  std::vector<Piece> all_pieces() const {
    std::vector<Piece> pieces;
    for (std::size_t p = 0; p < table_.projections.size(); ++p)
      for (std::int64_t layer = 0; layer < table_.layers; ++layer) pieces.push_back({p, layer});
    return pieces;
  }

  int team_count() const {
    std::int64_t columns = 0;
    for (const Stream stream : streams_) columns = std::max(columns, columns_of(stream));
    return to_int(overlap_teams(columns * projections_.hidden_size(), piece_count(), group_.size(), large_));
  }

  std::vector<std::vector<double>*> tables() {
    return {&table_.rank_sum, &table_.rank_joint, &table_.overlap_dimension, &table_.singular_values,
            &table_.alignment};
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

  /// The tables are sums over the roots of the teams, each of which has filled its own pieces.
  void clear_tables() {
    for (std::vector<double>* values : tables()) std::fill(values->begin(), values->end(), 0.0);
  }
  void join_tables() {
    for (std::vector<double>* values : tables())
      group_.sum(values->data(), static_cast<std::int64_t>(values->size()));
  }

  /// W of a piece: [hidden, columns], each rank reading a contiguous share of the columns. Collective over
  /// the team.
  Matrix read(const Piece& piece, Stream stream, const Grid& grid, const Grid& line) const {
    const std::int64_t rows = projections_.hidden_size(), columns = columns_of(stream);
    const int ranks = line.columns();
    Matrix w(grid, rows, columns,
             gram_block(grid.shape(), projections_.heads(stream), projections_.head_size()));
    const auto fill = [&](Matrix& share) {
      agree(line.comm(), [&] {
        if (share.local_columns() == 0) return;
        const std::vector<double> values = projections_.columns(
            piece.layer, stream, share.columns().global(line.column(), 0), share.local_columns());
        std::copy(values.begin(), values.end(), share.data());
      });
    };
    if (ranks == 1) {
      fill(w);
      return w;
    }
    Matrix share(line, rows, columns, std::max<std::int64_t>(1, (columns + ranks - 1) / ranks));
    fill(share);
    copy_part(share, 0, 0, w);
    return w;
  }

  /// Collective over the team.
  void run(const Piece& piece, const Grid& grid, const Grid& line) {
    const Stream stream = streams_[piece.projection];
    Matrix w = read(piece, stream, grid, line);
    const int exponent = bring_into_range(w);
    Matrix gram(grid, w.columns().size, w.columns().size, w.columns().block);
    multiply_transposed(w, gram);
    write_alignment(piece, stream, gram);
    const std::vector<double> ones(to_size(columns_of(stream)), 1.0);
    std::optional<ProjectionSpectrum> raw;
    for (std::size_t e = 0; e < table_.effective.size(); ++e) {
      const bool folds = table_.effective[e] == "effective" && projections_.has_gain(stream);
      if (!folds && !raw) raw = spectrum(w, gram, ones);
      std::vector<double> gain;
      if (folds) agree(line.comm(), [&] { gain = projections_.gain(piece.layer, stream); });
      write_spectrum(piece, e, folds ? spectrum(w, gram, gain) : *raw, exponent);
    }
  }

  ProjectionSpectrum spectrum(const Matrix& w, const Matrix& gram, const std::vector<double>& gain) const {
    const std::int64_t d = projections_.head_size();
    return table_.from_gram ? spectrum_of_gram(gram, gain, projections_.hidden_size(), d)
                            : spectrum_of_weights(w, gain, d);
  }

  /// spectrum: of W / 2^exponent.
  void write_spectrum(const Piece& piece, std::size_t effective, const ProjectionSpectrum& spectrum,
                      int exponent) {
    const std::size_t axis = piece.projection * table_.effective.size() + effective;
    for (std::size_t t = 0; t < table_.tolerances.size(); ++t) {
      const OverlapRanks ranks = overlap_ranks(spectrum, projections_.hidden_size(), projections_.head_size(),
                                               relative_tolerance(table_.tolerances[t]));
      const std::size_t at =
          (axis * table_.tolerances.size() + t) * to_size(table_.layers) + to_size(piece.layer);
      table_.rank_sum[at] = static_cast<double>(ranks.sum);
      table_.rank_joint[at] = static_cast<double>(ranks.joint);
      table_.overlap_dimension[at] = static_cast<double>(ranks.overlap_dimension());
    }
    auto out = table_.singular_values.begin() +
               (static_cast<std::int64_t>(axis) * table_.layers + piece.layer) * table_.values;
    std::fill_n(out, table_.values, std::numeric_limits<double>::quiet_NaN());
    std::transform(spectrum.joint.begin(), spectrum.joint.end(), out,
                   [&](double value) { return std::ldexp(value, exponent); });
  }

  /// The mean squared cosine of the principal angles of two heads, ||Q_i^T Q_j||_F^2 / d.
  void write_alignment(const Piece& piece, Stream stream, const Matrix& gram) {
    const std::int64_t heads = projections_.heads(stream), d = projections_.head_size();
    HeadLayout layout{d, std::vector<std::int64_t>(to_size(heads), 0), {}, projections_.hidden_size()};
    const HeadAngles angles = head_angles(gram, layout, diagonal(gram),
                                          static_cast<double>(d) * std::numeric_limits<double>::epsilon());
    for (std::int64_t r = 0; r < table_.heads; ++r)
      for (std::int64_t t = 0; t < table_.heads; ++t)
        table_.alignment[to_size(
            ((static_cast<std::int64_t>(piece.projection) * table_.layers + piece.layer) * table_.heads + r) *
                table_.heads +
            t)] = r < heads && t < heads ? angles.cosines[to_size(r * heads + t)] / static_cast<double>(d)
                                         : std::numeric_limits<double>::quiet_NaN();
  }

  const Projections& projections_;
  const Comm& group_;
  std::int64_t large_;
  std::vector<Stream> streams_;
  OverlapTable table_;
};

}  // namespace

OverlapTable compute_overlap(const Job::Overlap& request, const Projections& projections, const Comm& group,
                             const Log& log, const std::string& unit, std::int64_t large) {
  Overlap overlap(request, projections, group, large);
  Progress progress(log, "overlap", "projections", overlap.piece_count(), {{"unit", unit}});
  return overlap.compute(progress);
}

}  // namespace headspan
