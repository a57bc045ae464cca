#include "app/compress/plan_heads.h"

#include <algorithm>
#include <cmath>

#include "app/compress/causal_references.h"
#include "app/compress/graph_references.h"
#include "app/compress/layer_references.h"
#include "app/compress/plan_latents.h"
#include "app/run/run_clock.h"
#include "base/checked.h"
#include "stats/regression/head_moments.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

/// Fits the maps of a stream's targets from their references. A fit is sent to rank 0 as a list of numbers:
/// bias [d], held-out R2, loss, map [references d, d]. It is computed from the moments of the references (p
/// columns) and the target: [p + d, p + d].
class HeadMaps {
 public:
  HeadMaps(std::optional<double> ridge, const RegressionData& data, const std::vector<double>& metric,
           const std::vector<std::vector<std::int64_t>>& references, std::int64_t max_references)
      : ridge_(ridge),
        data_(data),
        metric_(metric),
        references_(references),
        max_references_(max_references),
        d_(data.layout.head_size) {}

  /// Fits all targets, one per rank and round; returns the blocks of the layers, on rank 0. Collective.
  std::vector<PlannedBlock> fit(std::int64_t layers, std::int64_t heads) {
    std::vector<PlannedBlock> blocks;
    for (std::int64_t layer = 0; layer < layers; ++layer) blocks.push_back(empty_block(layer, heads));
    const Comm& comm = data_.comm();
    for (std::int64_t first = 0; first < data_.layout.heads(); first += comm.size()) {
      stop_where_asked(comm);
      const std::int64_t head = first + comm.rank();
      const bool is_target = head < data_.layout.heads() && !references_[to_size(head)].empty();
      const auto fits = comm.gather(fit_target(is_target ? head : -1));
      for (std::size_t r = 0; r < fits.size(); ++r)
        if (!fits[r].empty()) store(first + static_cast<std::int64_t>(r), fits[r], heads, blocks);
    }
    return blocks;
  }

 private:
  PlannedBlock empty_block(std::int64_t layer, std::int64_t heads) const {
    PlannedBlock block;
    for (std::int64_t h = 0; h < heads; ++h)
      (references_[to_size(layer * heads + h)].empty() ? block.kept : block.targets).push_back(h);
    block.bands = {{static_cast<std::int64_t>(block.kept.size()) * d_}};
    const std::size_t targets = block.targets.size();
    block.references.assign(targets * to_size(max_references_), -1);
    block.map.assign(targets * to_size(max_references_ * d_ * d_), 0);
    block.bias.assign(targets * to_size(d_), 0);
    block.r2_heldout.assign(targets, NAN);
    block.loss.assign(targets, 0);
    return block;
  }

  /// Returns the fit of a target. A rank without a target (-1) gets an empty list and only supplies tiles to
  /// the others. Collective.
  std::vector<double> fit_target(std::int64_t target) const {
    std::vector<std::int64_t> heads;
    if (target >= 0) {
      heads = references_[to_size(target)];
      heads.push_back(target);
    }
    const std::vector<double> gram = dense_moments(data_.fit.matrix, heads, d_);
    const std::vector<double> heldout =
        data_.heldout ? dense_moments(data_.heldout->matrix, heads, d_) : std::vector<double>();
    if (target < 0) return {};
    const std::int64_t p = static_cast<std::int64_t>(heads.size() - 1) * d_;
    const std::vector<double> w = solve(gram, heads, p);  // [d, p], column-major
    std::vector<double> numbers(data_.fit.mean.begin() + target * d_,
                                data_.fit.mean.begin() + (target + 1) * d_);
    for (std::int64_t i = 0; i < p; ++i)
      for (std::int64_t j = 0; j < d_; ++j)
        numbers[to_size(j)] -=
            w[to_size(j + i * d_)] * data_.fit.mean[to_size(heads[to_size(i / d_)] * d_ + i % d_)];
    numbers.push_back(heldout_r2(w, heldout, target, p));
    numbers.push_back(loss(w, gram, target, p));
    numbers.insert(numbers.end(), w.begin(), w.end());  // [p, d] row-major
    return numbers;
  }

  /// Returns W^T of the regression on the references, [d, p] column-major. The rule's ridge, in units of the
  /// mean second moment, is added to the diagonal; columns that still depend on others are dropped.
  std::vector<double> solve(std::vector<double> gram, const std::vector<std::int64_t>& heads,
                            std::int64_t p) const {
    const std::int64_t side = p + d_;
    const std::vector<double> variance = gather(data_.sst, heads, d_);
    double mean = 0;
    for (std::int64_t i = 0; i < p; ++i) mean += gram[to_size(i * (side + 1))] / static_cast<double>(p);
    for (std::int64_t i = 0; i < p; ++i) gram[to_size(i * (side + 1))] += ridge_.value_or(0) * mean;
    const Factor factor =
        factor_regressors(gram.data(), p, side, variance.data(), data_.rules.pivot_tolerance(p));
    return solve_maps(factor, p, whiten(factor, &gram[to_size(p)], side, d_), d_);
  }

  double heldout_r2(const std::vector<double>& w, const std::vector<double>& moment, std::int64_t target,
                    std::int64_t p) const {
    if (moment.empty()) return NAN;
    const double* diagonal = &data_.moment_diagonal[to_size(target * d_)];
    const std::vector<double> errors =
        heldout_errors(w, p, {moment.data(), &moment[to_size(p)], p + d_, diagonal}, d_);
    const std::vector<double> unused(to_size(d_), 0.0);
    return score_head(data_, target, unused.data(), errors.data(), false).r2_heldout;
  }

  /// Returns tr(M E) / n for E = G_tt - W^T G_St - G_tS W + W^T G_SS W, n the number of tokens.
  double loss(const std::vector<double>& w, const std::vector<double>& gram, std::int64_t target,
              std::int64_t p) const {
    const auto g = [&](std::int64_t i, std::int64_t j) {
      return gram[to_size(std::max(i, j) + std::min(i, j) * (p + d_))];
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

  /// Puts the fit of a target into the block of its layer.
  void store(std::int64_t target, const std::vector<double>& numbers, std::int64_t heads,
             std::vector<PlannedBlock>& blocks) const {
    PlannedBlock& block = blocks[to_size(target / heads)];
    const auto t =
        std::find(block.targets.begin(), block.targets.end(), target % heads) - block.targets.begin();
    std::copy_n(numbers.begin(), d_, block.bias.begin() + t * d_);
    block.r2_heldout[to_size(t)] = numbers[to_size(d_)];
    block.loss[to_size(t)] = numbers[to_size(d_ + 1)];
    block.expected_loss += block.loss[to_size(t)];
    std::transform(numbers.begin() + d_ + 2, numbers.end(), block.map.begin() + t * max_references_ * d_ * d_,
                   [](double x) { return static_cast<float>(x); });
    const auto& references = references_[to_size(target)];
    std::copy(references.begin(), references.end(), block.references.begin() + t * max_references_);
  }

  std::optional<double> ridge_;
  const RegressionData& data_;
  const std::vector<double>& metric_;
  const std::vector<std::vector<std::int64_t>>& references_;
  std::int64_t max_references_;
  std::int64_t d_;
};

}  // namespace

HeadPlan plan_heads(const Job::Compress& rule, Calibration& calibration, const MeasuredKl& measure) {
  std::map<Stream, std::vector<double>> metrics = head_metrics(calibration);
  if (measure)
    for (const auto& [stream, scales] : loss_scale(rule, calibration, measure)) {
      std::vector<double>& metric = metrics.at(stream);
      const std::size_t layer_size = metric.size() / scales.size();
      for (std::size_t i = 0; i < metric.size(); ++i) metric[i] *= scales[i / layer_size];
    }
  std::map<Stream, RegressionData> data;
  for (auto& [stream, grams] : calibration.grams) {
    if (std::find(rule.streams.begin(), rule.streams.end(), stream) != rule.streams.end())
      data.emplace(stream, regression_data(calibration.layout, calibration.rules, std::move(grams.fit),
                                           std::move(grams.heldout)));
  }
  const ReferenceInput input(rule, data, metrics);
  const References references = rule.algorithm != CompressionAlgorithm::headspan ? graph_references(input)
                                : rule.scope == ReferenceScope::layer            ? layer_references(input)
                                                                                 : causal_references(input);
  HeadPlan planned;
  for (const auto& of_stream : references)
    for (const auto& list : of_stream)
      planned.references = std::max(planned.references, static_cast<std::int64_t>(list.size()));
  for (std::size_t s = 0; s < rule.streams.size(); ++s) {
    const Stream stream = rule.streams[s];
    planned.streams[stream] =
        HeadMaps(rule.ridge, data.at(stream), metrics.at(stream), references[s], planned.references)
            .fit(calibration.config.layers, calibration.config.kv_heads);
  }
  return planned;
}

}  // namespace headspan
