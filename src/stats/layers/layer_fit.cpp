#include "stats/layers/layer_fit.h"

#include <limits>

#include "base/checked.h"
#include "dist/matrix/large_array.h"
#include "stats/regression/head_moments.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

/// The sources of a layer, and those of its targets that a rank fits.
struct LayerShare {
  std::vector<std::int64_t> sources;
  Range targets;
};

class LayerFitter {
 public:
  explicit LayerFitter(const RegressionData& data) : data_(data), d_(data.layout.head_size) {}

  LayerFit compute() {
    const Comm& comm = data_.comm();
    fit_.targets = data_.layout.targets_of(comm.size(), comm.rank());
    const std::size_t n = to_size(fit_.targets.count);
    fit_.r2.assign(n, std::numeric_limits<double>::quiet_NaN());
    fit_.r2_heldout = fit_.r2;
    fit_.status.assign(n, kNotComputed);
    const std::vector<LayerShare> shares = shares_with_fit();
    const auto count = static_cast<std::int64_t>(shares.size()), rounds = comm.max(count);
    for (std::int64_t round = 0; round < rounds; ++round)
      regress(round < count ? shares[to_size(round)] : LayerShare{});
    return std::move(fit_);
  }

 private:
  std::int64_t regressors(const LayerShare& share) const {
    return static_cast<std::int64_t>(share.sources.size()) * data_.layout.source_size();
  }

  std::vector<std::int64_t> sources_in(std::int64_t layer) const {
    const HeadLayout& layout = data_.layout;
    std::vector<std::int64_t> heads;
    for (std::int64_t h = layout.sources().first; layout.sources().contains(h); ++h)
      if (layout.layer[to_size(h)] == layer) heads.push_back(h);
    return heads;
  }

  /// Returns this rank's targets by layer, without those that have no fit; sets the status of these.
  std::vector<LayerShare> shares_with_fit() {
    const std::vector<std::int64_t>& layer = data_.layout.layer;
    const std::int64_t end = fit_.targets.first + fit_.targets.count;
    std::vector<LayerShare> shares;
    for (std::int64_t first = fit_.targets.first, last; first < end; first = last) {
      for (last = first; last < end && layer[to_size(last)] == layer[to_size(first)];) ++last;
      LayerShare share{sources_in(layer[to_size(first)]), {first, last - first}};
      if (share.sources.empty()) continue;
      if (data_.rules.too_few(regressors(share)))
        std::fill_n(fit_.status.begin() + (first - fit_.targets.first), last - first, kTooFewTokens);
      else
        shares.push_back(std::move(share));
    }
    return shares;
  }

  /// Gathers the moments of the sources, [p, p], and below them those of the targets with the sources:
  /// column-major, the lower triangle of the sources' tiles valid. Collective.
  LargeArray<double> gather_moments(const Matrix& matrix, const LayerShare& share) const {
    const auto sources = static_cast<std::int64_t>(share.sources.size());
    const std::int64_t rows = (sources + share.targets.count) * d_;
    std::vector<Tile> tiles = tiles_among(share.sources);
    for (std::int64_t t = share.targets.first; share.targets.contains(t); ++t)
      for (const std::int64_t s : share.sources) tiles.push_back({std::max(s, t), std::min(s, t)});
    const TileViews views = view_tiles(matrix, d_, tiles);
    LargeArray<double> moments;
    moments.reserve(rows * sources * d_);
    const TileView* view = views.tiles.data();
    for (std::int64_t a = 0; a < sources; ++a)
      for (std::int64_t b = 0; b <= a; ++b)
        copy_tile(*view++, d_, false, moments.data() + (a + b * rows) * d_, rows);
    for (std::int64_t t = 0; t < share.targets.count; ++t)
      for (std::int64_t s = 0; s < sources; ++s)
        copy_tile(*view++, d_, share.targets.first + t < share.sources[to_size(s)],
                  moments.data() + (sources + t + s * rows) * d_, rows);
    return moments;
  }

  /// Fits the targets of a share, which may be empty. Collective.
  void regress(const LayerShare& share) {
    const LargeArray<double> gram = gather_moments(data_.fit.matrix, share);
    LargeArray<double> moment;
    if (data_.heldout) moment = gather_moments(data_.heldout->matrix, share);
    if (share.targets.count == 0) return;
    const std::int64_t p = static_cast<std::int64_t>(share.sources.size()) * d_, m = share.targets.count * d_;
    const std::vector<double> variance = gather(data_.sst, share.sources, d_);
    const Factor factor = factor_regressors(gram.data(), p, p + m, variance.data(),
                                            data_.rules.pivot_tolerance(regressors(share)));
    std::vector<double> x = whiten(factor, gram.data() + p, p + m, m);
    const std::vector<double> gains = explained(x, m);
    std::vector<double> errors;
    if (data_.heldout)
      errors = heldout_errors(solve_maps(factor, p, std::move(x), m), p,
                              {moment.data(), moment.data() + p, p + m,
                               &data_.moment_diagonal[to_size(share.targets.first * d_)]},
                              m);
    for (std::int64_t t = 0; t < share.targets.count; ++t) {
      const std::size_t row = to_size(share.targets.first + t - fit_.targets.first), at = to_size(t * d_);
      const Score score = score_head(data_, share.targets.first + t, &gains[at],
                                     data_.heldout ? &errors[at] : nullptr, factor.rank < regressors(share));
      fit_.r2[row] = score.r2;
      fit_.r2_heldout[row] = score.r2_heldout;
      fit_.status[row] = score.status;
    }
  }

  const RegressionData& data_;
  std::int64_t d_;
  LayerFit fit_;
};

}  // namespace

LayerFit fit_layers(const RegressionData& data) { return LayerFitter(data).compute(); }

}  // namespace headspan
