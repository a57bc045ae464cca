#include "app/compress/causal_references.h"

#include <algorithm>
#include <map>

#include "base/checked.h"
#include "dist/threads.h"
#include "stats/regression/head_moments.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

constexpr std::size_t kPool = 20;  // maximum candidates per target

class CausalReferences {
 public:
  explicit CausalReferences(const ReferenceInput& input) : input_(input), d_(input.layout().head_size) {}

  References choose() {
    const std::int64_t heads = input_.layout().heads();
    References candidates(input_.streams());
    for (std::size_t s = 0; s < candidates.size(); ++s) {
      candidates[s].resize(to_size(heads));
      for (std::int64_t first = 0; first < heads; first += input_.comm().size()) {
        const std::int64_t target = first + input_.comm().rank();
        std::vector<std::int64_t> pool = make_pool(s, target < heads ? target : -1);
        if (target < heads) candidates[s][to_size(target)] = std::move(pool);
      }
      share_lists(input_.comm(), candidates[s]);
    }
    References chosen =
        eliminate_causally(candidates, input_.layout().layer, input_.budget(),
                           [&](const std::vector<ReferenceQuery>& queries) { return answer(queries); });
    if (chosen.empty()) input_.refuse_budget(static_cast<std::int64_t>(input_.streams()));
    return chosen;
  }

 private:
  /// Returns the candidates of a target and stores its problem. A rank without a target (-1) only supplies
  /// tiles to the others. Collective.
  std::vector<std::int64_t> make_pool(std::size_t stream, std::int64_t target) {
    std::vector<std::int64_t> heads = best_sources(stream, target);
    if (target >= 0) heads.push_back(target);
    std::vector<double> moments = dense_moments(input_.data(stream).fit.matrix, heads, d_);
    if (target < 0) return {};
    problems_.emplace(std::make_pair(static_cast<std::int64_t>(stream), target),
                      input_.problem(stream, std::move(moments), heads));
    heads.pop_back();
    return heads;
  }

  /// Returns the heads of the target's own and earlier layers that explain most of it when used alone: at
  /// most kPool, best first. Collective.
  std::vector<std::int64_t> best_sources(std::size_t stream, std::int64_t target) const {
    std::vector<std::int64_t> sources;
    for (std::int64_t h = 0; h < input_.layout().heads() && target >= 0; ++h)
      if (h != target && input_.layout().layer[to_size(h)] <= input_.layout().layer[to_size(target)])
        sources.push_back(h);
    std::vector<Tile> tiles;
    for (const std::int64_t source : sources) {
      tiles.push_back({source, source});
      tiles.push_back({std::max(source, target), std::min(source, target)});
    }
    const TileViews views = view_tiles(input_.data(stream).fit.matrix, d_, tiles);
    std::vector<std::pair<double, std::int64_t>> ranked(sources.size());  // by what each explains
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t i = 0; i < sources.size(); ++i)
      ranked[i] = {explained(stream, views.tiles[2 * i], views.tiles[2 * i + 1], sources[i], target),
                   sources[i]};
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    ranked.resize(std::min(ranked.size(), kPool));
    std::vector<std::int64_t> best;
    best.reserve(ranked.size());
    for (const auto& [gain, source] : ranked) best.push_back(source);
    return best;
  }

  /// Returns tr(M X X^T) for X = G_tr L^-T: what the source r alone explains of the target t. M is the
  /// target's metric. diagonal: G_rr = L L^T; cross: the tile of source and target.
  double explained(std::size_t stream, const TileView& diagonal, const TileView& cross, std::int64_t source,
                   std::int64_t target) const {
    const RegressionData& data = input_.data(stream);
    std::vector<double> target_rows(to_size(d_ * d_));  // G_tr
    copy_tile(cross, d_, target < source, target_rows.data(), d_);
    const Factor factor = factor_regressors(diagonal.values, d_, diagonal.leading,
                                            &data.sst[to_size(source * d_)], data.rules.pivot_tolerance(d_));
    const std::vector<double> x = whiten(factor, target_rows.data(), d_, d_);
    const double* m = input_.metric(stream, target);
    double gain = 0;
    for (std::int64_t k = 0; k < factor.rank; ++k)
      for (std::int64_t a = 0; a < d_; ++a) {
        double sum = 0;
        for (std::int64_t b = 0; b < d_; ++b) sum += m[a * d_ + b] * x[to_size(b + k * d_)];
        gain += sum * x[to_size(a + k * d_)];
      }
    return gain;
  }

  /// Answers queries, each on the rank that has the target's problem; returns all answers on every rank.
  /// Collective.
  std::vector<MetricChoice> answer(const std::vector<ReferenceQuery>& queries) const {
    std::vector<double> losses(queries.size(), 0.0);
    std::vector<std::vector<std::int64_t>> references(queries.size());
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t q = 0; q < queries.size(); ++q) {
      const auto problem = problems_.find({queries[q].target.stream, queries[q].target.head});
      if (problem == problems_.end()) continue;
      MetricChoice choice = problem->second.choose(queries[q].allowed, input_.references());
      losses[q] = choice.loss;
      references[q] = std::move(choice.references);
    }
    input_.comm().sum(losses.data(), static_cast<std::int64_t>(losses.size()));
    share_lists(input_.comm(), references);
    std::vector<MetricChoice> choices;
    for (std::size_t q = 0; q < queries.size(); ++q) choices.push_back({references[q], losses[q]});
    return choices;
  }

  const ReferenceInput& input_;
  std::int64_t d_;
  std::map<std::pair<std::int64_t, std::int64_t>, MetricProblem>
      problems_;  // of this rank, by stream and target
};

}  // namespace

References causal_references(const ReferenceInput& input) { return CausalReferences(input).choose(); }

}  // namespace headspan
