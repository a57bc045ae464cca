#include "app/compress/causal_references.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/checked.h"
#include "dist/threads.h"
#include "stats/regression/head_moments.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

constexpr std::int64_t kPool = 20;  // candidates of a target

std::vector<std::int64_t> range(std::int64_t count) {
  std::vector<std::int64_t> all(to_size(count));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

/// A target on the rank that answers for it.
struct Pool {
  std::vector<std::int64_t> candidates;
  MetricProblem problem;
};

class CausalReferences {
 public:
  explicit CausalReferences(const ReferenceInput& input) : input_(input), d_(input.layout().head_size) {}

  References choose() {
    const std::int64_t heads = input_.layout().heads();
    std::vector<std::vector<std::vector<std::int64_t>>> candidates;
    for (std::size_t s = 0; s < input_.streams(); ++s) {
      std::vector<std::int64_t> table(to_size(heads * kPool), 0);  // head + 1
      for (std::int64_t first = 0; first < heads; first += input_.comm().size())
        make_pool(s, first + input_.comm().rank() < heads ? first + input_.comm().rank() : -1, table);
      input_.comm().sum(table.data(), heads * kPool);
      candidates.emplace_back(to_size(heads));
      for (std::int64_t at = 0; at < heads * kPool; ++at)
        if (table[to_size(at)] > 0) candidates.back()[to_size(at / kPool)].push_back(table[to_size(at)] - 1);
    }
    References chosen =
        eliminate_causally(candidates, input_.layout().layer, input_.budget(),
                           [&](const std::vector<ReferenceQuery>& queries) { return answer(queries); });
    if (chosen.empty()) input_.refuse_budget(static_cast<std::int64_t>(input_.streams()));
    return chosen;
  }

 private:
  /// -1: no target here, but others need this rank's tiles. Collective.
  void make_pool(std::size_t stream, std::int64_t target, std::vector<std::int64_t>& table) {
    std::vector<std::int64_t> heads = best_sources(stream, target);
    for (std::size_t i = 0; i < heads.size(); ++i) table[to_size(target * kPool) + i] = heads[i] + 1;
    if (target >= 0) heads.push_back(target);
    const TileViews views = view_tiles(input_.data(stream).fit.matrix, d_, tiles_among(heads));
    if (target < 0) return;
    const std::int64_t side = static_cast<std::int64_t>(heads.size()) * d_;
    std::vector<double> moments(to_size(side * side));
    assemble(heads, d_, views.tiles.data(), moments.data());
    MetricProblem problem = input_.problem(stream, std::move(moments), heads);
    heads.pop_back();
    pools_.emplace(std::make_pair(static_cast<std::int64_t>(stream), target),
                   Pool{heads, std::move(problem)});
  }

  /// The causal heads that leave least of the target on their own, at most kPool, ascending by that loss.
  /// Collective.
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
    std::vector<double> gain(sources.size());
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t i = 0; i < sources.size(); ++i)
      gain[i] = pair_gain(stream, views.tiles[2 * i], views.tiles[2 * i + 1], sources[i], target);
    std::vector<std::int64_t> order = range(static_cast<std::int64_t>(sources.size()));
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t a, std::int64_t b) { return gain[to_size(a)] > gain[to_size(b)]; });
    std::vector<std::int64_t> best;
    for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), kPool); ++i)
      best.push_back(sources[to_size(order[i])]);
    return best;
  }

  /// tr(M X X^T) for X = G_tr L^-T: what the source alone explains.
  double pair_gain(std::size_t stream, const TileView& own, const TileView& cross, std::int64_t source,
                   std::int64_t target) const {
    const RegressionData& data = input_.data(stream);
    std::vector<double> turned(to_size(d_ * d_));  // G_tr
    for (std::int64_t j = 0; j < d_; ++j)
      for (std::int64_t i = 0; i < d_; ++i)
        turned[to_size(i + j * d_)] =
            target > source ? cross.values[i + j * cross.leading] : cross.values[j + i * cross.leading];
    const Factor factor = factor_regressors(own.values, d_, own.leading, &data.sst[to_size(source * d_)],
                                            data.rules.pivot_tolerance(d_));
    const std::vector<double> x = whiten(factor, turned.data(), d_, d_);
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

  /// Each rank answers for its targets; all learn all answers. Collective.
  std::vector<MetricChoice> answer(const std::vector<ReferenceQuery>& queries) const {
    const std::int64_t width = input_.references() + 1;  // loss, then positions + 1
    std::vector<double> table(queries.size() * to_size(width), 0.0);
    const SingleThreadedBlas single;
#pragma omp parallel for schedule(dynamic)
    for (std::size_t q = 0; q < queries.size(); ++q) {
      const auto pool = pools_.find({queries[q].target.stream, queries[q].target.head});
      if (pool == pools_.end()) continue;
      const MetricChoice choice = pool->second.problem.choose(queries[q].allowed, input_.references());
      table[q * to_size(width)] = choice.loss;
      for (std::size_t i = 0; i < choice.references.size(); ++i)
        table[q * to_size(width) + 1 + i] = static_cast<double>(choice.references[i] + 1);
    }
    input_.comm().sum(table.data(), static_cast<std::int64_t>(table.size()));
    std::vector<MetricChoice> choices;
    for (std::size_t q = 0; q < queries.size(); ++q) {
      choices.push_back({{}, table[q * to_size(width)]});
      for (std::int64_t i = 1; i < width && table[q * to_size(width) + to_size(i)] > 0; ++i)
        choices.back().references.push_back(
            static_cast<std::int64_t>(table[q * to_size(width) + to_size(i)]) - 1);
    }
    return choices;
  }

  const ReferenceInput& input_;
  std::int64_t d_;
  std::map<std::pair<std::int64_t, std::int64_t>, Pool> pools_;
};

}  // namespace

References causal_references(const ReferenceInput& input) { return CausalReferences(input).choose(); }

}  // namespace headspan
