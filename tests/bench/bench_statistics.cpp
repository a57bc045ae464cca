// Everything after the Gram: all pairs, top-5 and forward selection, against the time of the Gram itself at
// 30 000 tokens, of which the bare dsyrk on a panel gives the rate.
#include <random>

#include "base/checked.h"
#include "bench/bench.h"
#include "dist/scalapack.h"
#include "stats/collector.h"
#include "stats/selection.h"

namespace headspan {
namespace {

constexpr std::int64_t kStudyTokens = 30000;
constexpr std::int64_t kReferences = 5, kPool = 16;

/// Fit and held-out Grams of activations with some structure: heads share a few directions.
RegressionData make_data(const BenchOptions& o, const Grid& grid) {
  HeadLayout layout{o.head_size, {}, {}, o.heads * o.head_size};
  for (std::int64_t h = 0; h < o.all_heads(); ++h) {
    layout.layer.push_back(h / o.heads);
    layout.head.push_back(h % o.heads);
  }
  Collector<float> collector(grid, {o.columns()}, {gram_block(grid, o.all_heads(), o.head_size)},
                             Precision::float64, true, 2048);
  std::mt19937 random(static_cast<unsigned>(grid.comm().rank()));
  std::normal_distribution<float> normal;
  const std::int64_t tokens = 2 * kReferences * o.head_size + 1000;
  for (const Part part : {Part::fit, Part::heldout}) {
    const Slab mine = slab_of(tokens, grid.comm().size(), grid.comm().rank());
    float* z = collector.add_rows(0, part, mine.count);
    for (std::int64_t t = 0; t < mine.count; ++t) {
      const float common = normal(random);
      for (std::int64_t j = 0; j < o.columns(); ++j)
        *z++ = normal(random) + common * static_cast<float>(j % 7);
    }
    collector.end_round(part, tokens);
  }
  StreamGrams grams = std::move(collector.finish().front());
  return regression_data(std::move(layout), FitRules{}, std::move(grams.fit), std::move(grams.heldout));
}

/// Seconds that a Gram of 30 000 tokens takes at the rate of this machine's dsyrk, on all ranks.
void one_panel(const BenchOptions& o, const std::vector<double>& panel, std::vector<double>& gram) {
  const int n = to_int(o.columns()), k = 1024;
  const double one = 1;
  dsyrk_("L", "N", &n, &k, &one, panel.data(), &n, &one, gram.data(), &n);
}

}  // namespace

bool bench_statistics(const BenchOptions& options, const Comm& comm) {
  const GridShape shape = squarest_grid(comm.size());
  const Grid grid(comm, static_cast<int>(shape.rows), static_cast<int>(shape.columns));
  const RegressionData data = make_data(options, grid);
  const PairTable pairs = all_pairs(data);
  std::vector<double> panel(static_cast<std::size_t>(1024 * options.columns()), 1.0);
  std::vector<double> gram(static_cast<std::size_t>(options.columns() * options.columns()));
  const std::function<void()> work = [&] {
    if (options.name == "pairwise") all_pairs(data);
    if (options.name == "topn") select(data, pairs, SelectionRule::pairwise, kReferences, kPool);
    if (options.name == "forward") select(data, pairs, SelectionRule::forward, kReferences, kPool);
  };
  const PairedTimes times = time_in_turn(
      comm, options.repeats, [&] { one_panel(options, panel, gram); }, work);
  const double panels = static_cast<double>(kStudyTokens) / 1024 / comm.size();
  return report(options, comm,
                {options.name + " against the Gram of 30000 tokens at dsyrk's rate", "s", times.second,
                 times.first * panels, times.ratio * panels, 0});
}

}  // namespace headspan
