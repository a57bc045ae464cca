// gram: the streamed Gram. One rank against bare BLAS calls of the same shape on a panel that is ready in the
// type of the product; several ranks against one of them.
#include <algorithm>
#include <type_traits>

#include "base/checked.h"
#include "base/range.h"
#include "bench/streamed_rows.h"
#include "dist/matrix/scalapack.h"
#include "stats/gram/collector.h"

namespace headspan {
namespace {

std::int64_t tokens_of_a_step(const Grid& grid, const BenchOptions& options) {
  return panel_tokens<float>(grid.shape(), {options.columns()}, options.product(), false);
}

/// The Gram of rows that are there: shift, sums, exchange and products. Collective over the grid.
void update_gram(const Grid& grid, const BenchOptions& options, const std::vector<float>& rows) {
  const std::int64_t columns = options.columns(), step = tokens_of_a_step(grid, options);
  GramSums sums(grid, columns, gram_block(grid.shape(), options.all_heads(), options.head_size));
  GramUpdater<float> updater(grid, options.product());
  std::vector<double> shift;
  for (std::int64_t first = 0; first < options.tokens; first += step) {
    const Range mine =
        range_of(std::min(step, options.tokens - first), grid.comm().size(), grid.comm().rank());
    const float* z = rows.data() + (first + mine.first) * columns;
    if (first == 0) shift = provisional_mean(grid.comm(), z, mine.count, columns);
    updater.add(sums, z, mine.count, shift);
  }
  updater.drain();
  finish(std::move(sums), shift);
}

/// The products of a Gram of `tokens` tokens and nothing else, all from the same panel.
template <class T>
void bare_syrk(const BenchOptions& options, std::int64_t step, const std::vector<T>& panel,
               std::vector<T>& gram) {
  const int n = to_int(options.columns());
  const T one = 1;
  for (std::int64_t first = 0; first < options.tokens; first += step) {
    const int k = to_int(std::min(step, options.tokens - first));
    if constexpr (std::is_same_v<T, double>)
      dsyrk_("L", "N", &n, &k, &one, panel.data(), &n, &one, gram.data(), &n);
    else
      ssyrk_("L", "N", &n, &k, &one, panel.data(), &n, &one, gram.data(), &n);
  }
}

Use gram_use(const BenchOptions& options, double seconds) {
  return {options.product_resource(), options.gram_gflop() / seconds};
}

/// Returns the least ratio to BLAS; products of integers are to be faster than FP64.
double required_of(const BenchOptions& options) {
  if (options.product() == Precision::split)
    return fastest_product(Precision::split) == ProductKind::integers ? 1.3 : kNone;
  return options.threads == 1 ? 0.97 : 0.95;
}

/// T: the type of the products of BLAS.
template <class T>
bool against_syrk(const BenchOptions& options, const Comm& comm) {
  const Grid grid(comm, 1, 1);
  const auto rows = random_rows(options, options.tokens, 1);
  const std::int64_t columns = options.columns(), step = tokens_of_a_step(grid, options);
  const std::vector<T> panel(rows.begin(), rows.begin() + std::min(step, options.tokens) * columns);
  std::vector<T> gram(static_cast<std::size_t>(columns * columns));
  const TurnTimes times = time_in_turn(
      comm, options.repeats, [&] { bare_syrk(options, step, panel, gram); },
      [&] { update_gram(grid, options, rows); });
  const double gflop = options.gram_gflop();
  const std::string routine = std::is_same_v<T, double> ? "dsyrk" : "ssyrk";
  return report(options, comm,
                {"Gram, " + options.precision + ", against bare " + routine, "GF/s", gflop / times.routine,
                 gflop / times.limit, times.speed, required_of(options), gram_use(options, times.routine)});
}

bool against_one_rank(const BenchOptions& options, const Comm& comm) {
  const GridShape shape = squarest_grid(comm.size());
  const Grid grid(comm, static_cast<int>(shape.rows), static_cast<int>(shape.columns));
  const Comm self = comm.split(comm.rank(), 0);
  const Grid alone(self, 1, 1);
  const auto rows = random_rows(options, options.tokens, 1);
  const TurnTimes times = time_in_turn(
      comm, options.repeats,
      [&] {
        if (comm.is_root()) update_gram(alone, options, rows);
      },
      [&] { update_gram(grid, options, rows); });
  return report(options, comm,
                {"Gram, " + options.precision + ", " + std::to_string(comm.size()) + " ranks against one",
                 "s", times.routine, times.limit, times.speed, comm.size() == 2 ? 1.8 : kNone,
                 gram_use(options, times.routine)});
}

}  // namespace

bool bench_gram(const BenchOptions& options, const Comm& comm) {
  const bool in_double = multiplies_doubles(options.product());
  if (comm.size() > 1) return against_one_rank(options, comm);
  return in_double ? against_syrk<double>(options, comm) : against_syrk<float>(options, comm);
}

}  // namespace headspan
