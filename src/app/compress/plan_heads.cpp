#include "app/compress/plan_heads.h"

#include <algorithm>
#include <cmath>

#include "app/compress/head_references.h"
#include "app/compress/plan_latents.h"
#include "app/run/run_clock.h"
#include "base/checked.h"
#include "stats/regression/head_moments.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

/// One target on the rank that fits it.
struct Fitted {
  std::vector<double> numbers;  ///< bias [d], R² held-out, loss, then the map [references d, d]
};

/// Maps of one stream's targets from their references.
class HeadMaps {
 public:
  HeadMaps(const Job::Compress& rule, const RegressionData& data, const std::vector<double>& metric,
           const std::vector<std::vector<std::int64_t>>& references, std::int64_t most)
      : rule_(rule),
        data_(data),
        metric_(metric),
        references_(references),
        most_(most),
        d_(data.layout.head_size) {}

  /// The blocks of the layers, on rank 0. Collective.
  std::vector<PlannedBlock> fit(std::int64_t layers, std::int64_t heads) {
    std::vector<PlannedBlock> blocks;
    for (std::int64_t layer = 0; layer < layers; ++layer) blocks.push_back(empty_block(layer, heads));
    const Comm& comm = data_.comm();
    const std::int64_t all = data_.layout.heads();
    for (std::int64_t first = 0; first < all; first += comm.size()) {
      stop_where_asked(comm);
      const std::int64_t mine = first + comm.rank();
      const bool works = mine < all && !references_[to_size(mine)].empty();
      const std::vector<double> numbers = fit_target(works ? mine : -1);
      std::vector<std::vector<double>> send(to_size(comm.size()));
      send[0] = numbers;
      const auto received = comm.exchange(send);
      for (std::size_t r = 0; r < received.size() && comm.is_root(); ++r)
        if (!received[r].empty()) take(first + static_cast<std::int64_t>(r), received[r], heads, blocks);
    }
    return blocks;
  }

 private:
  PlannedBlock empty_block(std::int64_t layer, std::int64_t heads) const {
    PlannedBlock block;
    for (std::int64_t h = 0; h < heads; ++h)
      (references_[to_size(layer * heads + h)].empty() ? block.kept : block.targets).push_back(h);
    block.bands = {{static_cast<std::int64_t>(block.kept.size()) * d_, kPlainBits, false}};
    const std::size_t targets = block.targets.size();
    block.references.assign(targets * to_size(most_), -1);
    block.map.assign(targets * to_size(most_ * d_ * d_), 0);
    block.bias.assign(targets * to_size(d_), 0);
    block.r2_heldout.assign(targets, NAN);
    block.loss.assign(targets, 0);
    return block;
  }

  /// The moments of the heads, dense; of no heads where there is no target. Collective.
  std::vector<double> moments(const Matrix& matrix, const std::vector<std::int64_t>& heads) const {
    const TileViews views = view_tiles(matrix, d_, tiles_among(heads));
    const std::int64_t side = static_cast<std::int64_t>(heads.size()) * d_;
    std::vector<double> dense(to_size(side * side));
    if (!heads.empty()) assemble(heads, d_, views.tiles.data(), dense.data());
    return dense;
  }

  /// -1: nothing to fit here, but to help others. Collective.
  std::vector<double> fit_target(std::int64_t target) const {
    std::vector<std::int64_t> heads;
    if (target >= 0) {
      heads = references_[to_size(target)];
      heads.push_back(target);
    }
    const std::vector<double> gram = moments(data_.fit.matrix, heads);
    const std::vector<double> heldout =
        data_.heldout ? moments(data_.heldout->matrix, heads) : std::vector<double>();
    if (target < 0) return {};
    const std::int64_t p = static_cast<std::int64_t>(heads.size() - 1) * d_, side = p + d_;
    const std::vector<double> w = solve(gram, heads, p);  // [d, p], column-major
    std::vector<double> numbers(data_.fit.mean.begin() + target * d_,
                                data_.fit.mean.begin() + (target + 1) * d_);
    for (std::int64_t i = 0; i < p; ++i)
      for (std::int64_t j = 0; j < d_; ++j)
        numbers[to_size(j)] -=
            w[to_size(j + i * d_)] * data_.fit.mean[to_size(heads[to_size(i / d_)] * d_ + i % d_)];
    numbers.push_back(heldout_r2(w, heldout, target, p, side));
    numbers.push_back(loss(w, gram, target, p, side));
    numbers.insert(numbers.end(), w.begin(), w.end());  // rows of the map: one regressor's d coordinates
    return numbers;
  }

  /// W^T of the regression on the references, with the ridge or the rank guard.
  std::vector<double> solve(std::vector<double> gram, const std::vector<std::int64_t>& heads,
                            std::int64_t p) const {
    const std::int64_t side = p + d_;
    const std::vector<double> variance = gather(data_.sst, heads, d_);
    double mean = 0;
    for (std::int64_t i = 0; i < p; ++i) mean += gram[to_size(i * (side + 1))] / static_cast<double>(p);
    for (std::int64_t i = 0; i < p; ++i) gram[to_size(i * (side + 1))] += rule_.ridge.value_or(0) * mean;
    const Factor factor =
        factor_regressors(gram.data(), p, side, variance.data(), data_.rules.pivot_tolerance(p));
    return solve_maps(factor, p, whiten(factor, &gram[to_size(p)], side, d_), d_);
  }

  double heldout_r2(const std::vector<double>& w, const std::vector<double>& moment, std::int64_t target,
                    std::int64_t p, std::int64_t side) const {
    if (moment.empty()) return NAN;
    const double* diagonal = &data_.moment_diagonal[to_size(target * d_)];
    const std::vector<double> errors =
        heldout_errors(w, p, {moment.data(), &moment[to_size(p)], side, diagonal}, d_);
    const std::vector<double> unused(to_size(d_), 0.0);
    return score_head(data_, target, unused.data(), errors.data(), false).r2_heldout;
  }

  /// tr(M E) for E = G_tt - W^T G_St - G_tS W + W^T G_SS W, over n.
  double loss(const std::vector<double>& w, const std::vector<double>& gram, std::int64_t target,
              std::int64_t p, std::int64_t side) const {
    const auto g = [&](std::int64_t i, std::int64_t j) {
      return gram[to_size(std::max(i, j) + std::min(i, j) * side)];
    };
    const double* m = &metric_[to_size(target * d_ * d_)];
    std::vector<double> product(to_size(d_ * p));  // W^T G_SS
    for (std::int64_t k = 0; k < p; ++k)
      for (std::int64_t i = 0; i < p; ++i)
        for (std::int64_t a = 0; a < d_; ++a)
          product[to_size(a + k * d_)] += w[to_size(a + i * d_)] * g(i, k);
    double trace = 0;
    for (std::int64_t a = 0; a < d_; ++a)
      for (std::int64_t b = 0; b < d_; ++b) {
        double error = g(p + a, p + b);
        for (std::int64_t i = 0; i < p; ++i)
          error += product[to_size(a + i * d_)] * w[to_size(b + i * d_)] -
                   w[to_size(a + i * d_)] * g(p + b, i) - w[to_size(b + i * d_)] * g(p + a, i);
        trace += m[a * d_ + b] * error;
      }
    return trace / static_cast<double>(data_.fit.tokens);
  }

  void take(std::int64_t target, const std::vector<double>& numbers, std::int64_t heads,
            std::vector<PlannedBlock>& blocks) const {
    PlannedBlock& block = blocks[to_size(target / heads)];
    const auto at =
        std::find(block.targets.begin(), block.targets.end(), target % heads) - block.targets.begin();
    std::copy_n(numbers.begin(), d_, block.bias.begin() + at * d_);
    block.r2_heldout[to_size(at)] = numbers[to_size(d_)];
    block.loss[to_size(at)] = numbers[to_size(d_ + 1)];
    block.expected_loss += block.loss[to_size(at)];
    std::transform(numbers.begin() + d_ + 2, numbers.end(), block.map.begin() + at * most_ * d_ * d_,
                   [](double x) { return static_cast<float>(x); });
    const auto& references = references_[to_size(target)];
    std::copy(references.begin(), references.end(), block.references.begin() + at * most_);
  }

  const Job::Compress& rule_;
  const RegressionData& data_;
  const std::vector<double>& metric_;
  const std::vector<std::vector<std::int64_t>>& references_;
  std::int64_t most_;
  std::int64_t d_;
};

}  // namespace

HeadPlan plan_heads(const Job::Compress& rule, Calibration& calibration, const MeasuredKl& measure) {
  std::map<std::string, std::vector<double>> metrics = head_metrics(calibration);
  if (measure)
    for (const auto& [stream, units] : loss_scale(rule, calibration, measure)) {
      std::vector<double>& metric = metrics.at(stream);
      const std::size_t of_layer = metric.size() / units.size();
      for (std::size_t i = 0; i < metric.size(); ++i) metric[i] *= units[i / of_layer];
    }
  std::map<std::string, RegressionData> data;
  for (auto& [stream, grams] : calibration.grams) {
    const bool asked = std::find(rule.streams.begin(), rule.streams.end(), stream) != rule.streams.end();
    if (asked)
      data.emplace(stream, regression_data(calibration.layout, calibration.rules, std::move(grams.fit),
                                           std::move(grams.heldout)));
  }
  const StreamReferences references = choose_references(rule, data, metrics);
  HeadPlan planned;
  for (const auto& [stream, own] : references)
    for (const auto& list : own)
      planned.references = std::max(planned.references, static_cast<std::int64_t>(list.size()));
  for (const std::string& stream : rule.streams)
    planned.streams[stream] =
        HeadMaps(rule, data.at(stream), metrics.at(stream), references.at(stream), planned.references)
            .fit(calibration.config.layers, calibration.config.kv_heads);
  return planned;
}

}  // namespace headspan
