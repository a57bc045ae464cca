#include "stats/regression/selection.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/checked.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/large_array.h"
#include "dist/threads.h"
#include "stats/regression/joint_fit.h"

namespace headspan {
namespace {

/// A target of a round and the heads whose moments it needs, itself last.
struct Problem {
  std::int64_t target;
  std::vector<std::int64_t> heads;
};

/// Views of the tiles of a round's problems, one problem after another, and where each begins.
struct RoundTiles {
  std::vector<std::size_t> first;
  TileViews views;
};

bool is_source(const HeadLayout& layout, std::int64_t head, std::int64_t target, SourceScope scope) {
  return scope == SourceScope::causal ? layout.is_causal(head, target) : layout.predicts(head, target);
}

class Selection {
 public:
  Selection(const RegressionData& data, const PairTable& pairs, SelectionRule rule, std::int64_t references,
            std::int64_t pool, const ForwardChoices& forward, SourceScope scope)
      : data_(data),
        pairs_(pairs),
        rule_(rule),
        forward_(forward),
        scope_(scope),
        references_(references),
        pool_(rule == SelectionRule::forward ? pool : references),
        d_(data.layout.head_size) {}

  SelectionTable compute() {
    empty_table();
    const std::int64_t step = targets_per_round();
    const std::int64_t rounds = data_.comm().max((pairs_.targets.count + step - 1) / step);
    for (std::int64_t round = 0; round < rounds; ++round) {
      const std::int64_t first = std::min(round * step, pairs_.targets.count);
      run_round(first, std::min(first + step, pairs_.targets.count));
    }
    return std::move(table_);
  }

 private:
  void empty_table() {
    const std::size_t n = to_size(pairs_.targets.count * references_);
    const double nan = std::numeric_limits<double>::quiet_NaN();
    table_ = {pairs_.targets,
              references_,
              std::vector<int>(n, -1),
              std::vector<double>(n, nan),
              std::vector<double>(n, nan),
              std::vector<std::uint8_t>(n, kNotComputed),
              std::vector<int>(n, 0),
              std::vector<double>(n, nan)};
  }

  /// Returns for how many targets the tiles of other ranks fit in 64 MiB.
  std::int64_t targets_per_round() const {
    const std::int64_t side = (pool_ + 1) * d_, ranks = data_.comm().size();
    const std::int64_t remote = side * side / 2 * (ranks - 1) / ranks;
    return std::clamp<std::int64_t>((std::int64_t{1} << 23) / std::max<std::int64_t>(1, remote), 1, 1024);
  }

  void run_round(std::int64_t first, std::int64_t last) {
    std::vector<Problem> problems;
    for (std::int64_t t = first; t < last; ++t) {
      const std::int64_t target = pairs_.targets.first + t;
      problems.push_back({target, ranked_sources(data_.layout, pairs_, target, pool_, scope_)});
      problems.back().heads.push_back(target);
    }
    if (rule_ == SelectionRule::forward) narrow_pools(problems);
    score(problems);
  }

  /// Views the tiles of each problem's heads. Collective.
  RoundTiles view(const Matrix& matrix, const std::vector<Problem>& problems) const {
    RoundTiles round;
    std::vector<Tile> tiles;
    for (const Problem& problem : problems) {
      round.first.push_back(tiles.size());
      const std::vector<Tile> among = tiles_among(problem.heads);
      tiles.insert(tiles.end(), among.begin(), among.end());
    }
    round.views = view_tiles(matrix, d_, tiles);
    return round;
  }

  /// Returns the moments of problem k's heads as a dense matrix in `memory`.
  const double* dense(const RoundTiles& round, const std::vector<Problem>& problems, std::size_t k,
                      LargeArray<double>& memory) const {
    const std::int64_t side = static_cast<std::int64_t>(problems[k].heads.size()) * d_;
    memory.reserve(side * side);
    assemble(problems[k].heads, d_, &round.views.tiles[round.first[k]], memory.data());
    return memory.data();
  }

  /// Replaces the pool of each problem by what forward selection chooses from it. Collective.
  void narrow_pools(std::vector<Problem>& problems) const {
    const RoundTiles tiles = view(data_.fit.matrix, problems);
    std::vector<ForwardProblem> pools;
    for (std::size_t k = 0; k < problems.size(); ++k)
      pools.push_back({problems[k].heads, &tiles.views.tiles[tiles.first[k]], data_.layout.source_size()});
    std::vector<std::vector<std::int64_t>> choices;
    agree(data_.comm(), [&] { choices = choose_forward(data_, pools, references_, forward_); });
    for (std::size_t k = 0; k < problems.size(); ++k) {
      problems[k].heads.clear();
      for (const std::int64_t c : choices[k]) problems[k].heads.push_back(pools[k].heads[to_size(c)]);
      problems[k].heads.push_back(problems[k].target);
    }
  }

  /// Fits the joint regressions on the first 1, 2, .. of each problem's heads. Collective.
  void score(const std::vector<Problem>& problems) {
    const RoundTiles fit = view(data_.fit.matrix, problems);
    RoundTiles heldout;
    if (data_.heldout) heldout = view(data_.heldout->matrix, problems);
    const SingleThreadedBlas single;
#pragma omp parallel
    {
      LargeArray<double> gram, moment;
#pragma omp for schedule(dynamic)
      for (std::size_t k = 0; k < problems.size(); ++k)
        score_target(problems[k], dense(fit, problems, k, gram),
                     data_.heldout ? dense(heldout, problems, k, moment) : nullptr);
    }
  }

  /// Fills in the rows of one target. gram, moment: dense moments of the problem's heads; `moment` is null
  /// without a held-out part.
  void score_target(const Problem& problem, const double* gram, const double* moment) {
    const auto found = static_cast<std::int64_t>(problem.heads.size()) - 1;
    const std::int64_t row = (problem.target - pairs_.targets.first) * references_;
    for (std::int64_t n = 1; n <= references_; ++n) {
      const std::size_t at = to_size(row + n - 1);
      if (n <= found) table_.sources[at] = static_cast<int>(problem.heads[to_size(n - 1)]);
      if (n > found || data_.rules.too_few(n * data_.layout.source_size()))
        table_.status[at] = missing_status(problem.target, n);
      else if (n == 1)
        store_pair(problem.target, problem.heads[0], at);
      else
        store_fit(fit_jointly(data_, problem.heads, n, gram, moment), at);
    }
  }

  /// Copies the fit on one source from the pairs.
  void store_pair(std::int64_t target, std::int64_t source, std::size_t at) {
    const std::size_t pair = to_size((target - pairs_.targets.first) * data_.layout.heads() + source);
    table_.r2[at] = pairs_.r2[pair];
    table_.r2_heldout[at] = pairs_.r2_heldout[pair];
    table_.status[at] = pairs_.status[pair];
    table_.rank[at] = pairs_.rank[to_size(source)];
    table_.pivot[at] = pairs_.pivot[to_size(source)];
  }

  /// Returns why there is no joint R² of `count` sources.
  std::uint8_t missing_status(std::int64_t target, std::int64_t count) const {
    if (!data_.rules.too_few(count * data_.layout.source_size())) return kNotComputed;
    std::int64_t sources = 0;
    for (std::int64_t s = 0; s < data_.layout.heads(); ++s)
      sources += is_source(data_.layout, s, target, scope_) ? 1 : 0;
    return count <= sources ? kTooFewTokens : kNotComputed;
  }

  void store_fit(const JointFit& fit, std::size_t at) {
    table_.r2[at] = fit.score.r2;
    table_.r2_heldout[at] = fit.score.r2_heldout;
    table_.status[at] = fit.score.status;
    table_.rank[at] = static_cast<int>(fit.rank);
    table_.pivot[at] = fit.pivot;
  }

  const RegressionData& data_;
  const PairTable& pairs_;
  SelectionRule rule_;
  const ForwardChoices& forward_;
  SourceScope scope_;
  std::int64_t references_;
  std::int64_t pool_;
  std::int64_t d_;
  SelectionTable table_;
};

}  // namespace

std::vector<std::int64_t> ranked_sources(const HeadLayout& layout, const PairTable& pairs,
                                         std::int64_t target, std::int64_t count, SourceScope scope) {
  const double* r2 = pairs.r2.data() + (target - pairs.targets.first) * layout.heads();
  std::vector<std::int64_t> sources;
  for (std::int64_t s = 0; s < layout.heads(); ++s)
    if (is_source(layout, s, target, scope) && !std::isnan(r2[s])) sources.push_back(s);
  std::stable_sort(sources.begin(), sources.end(),
                   [r2](std::int64_t a, std::int64_t b) { return r2[a] > r2[b]; });
  if (static_cast<std::int64_t>(sources.size()) > count) sources.resize(to_size(count));
  return sources;
}

std::vector<Tile> selection_tiles(const HeadLayout& layout, const PairTable& pairs, std::int64_t pool) {
  std::vector<Tile> tiles;
  for (std::int64_t t = 0; t < pairs.targets.count; ++t) {
    const std::int64_t target = pairs.targets.first + t;
    std::vector<std::int64_t> heads = ranked_sources(layout, pairs, target, pool);
    heads.push_back(target);
    const std::vector<Tile> among = tiles_among(heads);
    tiles.insert(tiles.end(), among.begin(), among.end());
  }
  return tiles;
}

SelectionTable select(const RegressionData& data, const PairTable& pairs, SelectionRule rule,
                      std::int64_t references, std::int64_t pool, const ForwardChoices& forward,
                      SourceScope scope) {
  return Selection(data, pairs, rule, references, pool, forward, scope).compute();
}

}  // namespace headspan
