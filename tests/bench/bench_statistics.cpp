// pairwise, topn, selection, statistics: what follows the Gram, held-out part included, each alone and all
// three together, against the time that a Gram of 30 000 tokens takes at the rate of bare dsyrk on all ranks.
// Their own time does not depend on the number of tokens, so few are enough here.
#include <algorithm>

#include "base/checked.h"
#include "bench/streamed_rows.h"
#include "dist/matrix/scalapack.h"
#include "stats/regression/selection.h"

namespace headspan {
namespace {

constexpr std::int64_t kReferences = 5, kPool = 16;
constexpr double kGramTokens = 30000;
constexpr double kLeastSpeed = 4;  // all three take at most a quarter of the Gram's time

RegressionData make_data(const BenchOptions& options, const Grid& grid) {
  const std::int64_t tokens = kReferences * options.head_size + 200;  // every fit has enough
  HeadGram fit = stream_gram(grid, options, random_rows(options, tokens, 1));
  HeadGram heldout = stream_gram(grid, options, random_rows(options, tokens, 2));
  return regression_data(row_layout(options), row_rules(options), std::move(fit), std::move(heldout));
}

/// One dsyrk on each rank, of a size that runs at full speed.
class SyrkProbe {
 public:
  explicit SyrkProbe(std::int64_t columns)
      : n_(to_int(std::min<std::int64_t>(columns, 4096))),
        panel_(static_cast<std::size_t>(n_) * kTokens, 1.0),
        gram_(static_cast<std::size_t>(n_) * static_cast<std::size_t>(n_)) {}

  void run() {
    const double one = 1;
    dsyrk_("L", "N", &n_, &kTokens, &one, panel_.data(), &n_, &one, gram_.data(), &n_);
  }

  /// How many probes, one on each rank at a time, make up the products of a Gram.
  double probes_of_gram(double columns, double tokens, int ranks) const {
    return columns * (columns + 1) * tokens / (static_cast<double>(n_) * (n_ + 1) * kTokens * ranks);
  }

 private:
  static constexpr int kTokens = 1024;
  int n_;
  std::vector<double> panel_;
  std::vector<double> gram_;
};

}  // namespace

bool bench_statistics(const BenchOptions& options, const Comm& comm) {
  const GridShape shape = squarest_grid(comm.size());
  const Grid grid(comm, static_cast<int>(shape.rows), static_cast<int>(shape.columns));
  const RegressionData data = make_data(options, grid);
  const PairTable pairs = all_pairs(data);
  const bool together = options.name == "statistics";
  SyrkProbe probe(options.columns());
  const TurnTimes times = time_in_turn(
      comm, options.repeats, [&] { probe.run(); },
      [&] {
        if (together || options.name == "pairwise") all_pairs(data);
        if (together || options.name == "topn")
          select(data, pairs, SelectionRule::pairwise, kReferences, kPool);
        if (together || options.name == "selection")
          select(data, pairs, SelectionRule::forward, kReferences, kPool);
      });
  const double probes =
      probe.probes_of_gram(static_cast<double>(options.columns()), kGramTokens, comm.size());
  const std::string what = together                      ? "all pairs, top-5 and forward selection"
                           : options.name == "selection" ? "forward selection"
                                                         : options.name;
  return report(options, comm,
                {what + ", against the Gram of 30000 tokens", "s", times.routine, times.limit * probes,
                 times.speed * probes, together ? kLeastSpeed : kNone});
}

}  // namespace headspan
