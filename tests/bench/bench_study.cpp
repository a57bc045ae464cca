// study: from float32 rows in memory to R², in-sample, on all tokens: what a numpy script does, and
// `peers.py numpy` and `peers.py selection` do on the same shapes.
#include <optional>

#include "bench/streamed_rows.h"
#include "stats/regression/selection.h"

namespace headspan {
namespace {

constexpr std::int64_t kReferences = 5, kPool = 16;

}  // namespace

bool bench_study(const BenchOptions& options, const Comm& comm) {
  const GridShape shape = squarest_grid(comm.size());
  const Grid grid(comm, static_cast<int>(shape.rows), static_cast<int>(shape.columns));
  const auto rows = random_rows(options, options.tokens, 1);
  std::optional<RegressionData> data;
  std::optional<PairTable> pairs;
  const double study = median_seconds(comm, options.repeats, [&] {
    data.emplace(
        regression_data(row_layout(options), row_rules(options), stream_gram(grid, options, rows), {}));
    pairs.emplace(all_pairs(*data));
    select(*data, *pairs, SelectionRule::pairwise, kReferences, kPool);
  });
  const double forward = median_seconds(
      comm, options.repeats, [&] { select(*data, *pairs, SelectionRule::forward, kReferences, kPool); });
  const Resource products = options.product_resource();
  report(options, comm,
         {"Gram, all pairs and top-5",
          "s",
          study,
          kNone,
          kNone,
          kNone,
          {products, options.gram_gflop() / study}});  // the pairs are less than a hundredth of the products
  report(options, comm, {"forward selection", "s", forward});
  return true;
}

}  // namespace headspan
