// The streamed Gram against one bare BLAS call of the same shape on the same panels; on several ranks against
// one of them.
#include <algorithm>
#include <random>

#include "base/checked.h"
#include "bench/bench.h"
#include "dist/scalapack.h"
#include "stats/collector.h"

namespace headspan {
namespace {

constexpr std::int64_t kPanelTokens = 2048;

std::vector<float> random_rows(std::int64_t tokens, std::int64_t columns) {
  std::vector<float> z(static_cast<std::size_t>(tokens * columns));
  std::mt19937 random(1);
  std::normal_distribution<float> normal(1, 1);
  for (float& value : z) value = normal(random);
  return z;
}

/// All tokens through the collector, dealt out over the ranks of the grid.
void stream_gram(const Grid& grid, const BenchOptions& o, const std::vector<float>& panel) {
  const Precision precision = o.precision == "float64" ? Precision::float64 : Precision::float32;
  Collector<float> collector(grid, {o.columns()}, {gram_block(grid, o.all_heads(), o.head_size)}, precision,
                             false, kPanelTokens);
  for (std::int64_t first = 0; first < o.tokens; first += kPanelTokens) {
    const std::int64_t tokens = std::min(kPanelTokens, o.tokens - first);
    const Slab mine = slab_of(tokens, grid.comm().size(), grid.comm().rank());
    std::copy_n(panel.data(), mine.count * o.columns(), collector.add_rows(0, Part::fit, mine.count));
    collector.end_round(Part::fit, tokens);
  }
  collector.finish();
}

/// The same products as bare syrk calls on a ready panel.
template <class T>
void bare_syrk(const BenchOptions& o, const std::vector<T>& panel, std::vector<T>& gram) {
  const int n = to_int(o.columns());
  const T one = 1;
  for (std::int64_t first = 0; first < o.tokens; first += kPanelTokens) {
    const int k = to_int(std::min(kPanelTokens, o.tokens - first));
    if constexpr (std::is_same_v<T, double>)
      dsyrk_("L", "N", &n, &k, &one, panel.data(), &n, &one, gram.data(), &n);
    else
      ssyrk_("L", "N", &n, &k, &one, panel.data(), &n, &one, gram.data(), &n);
  }
}

template <class T>
bool against_syrk(const BenchOptions& o, const Comm& comm, const std::vector<float>& z) {
  const Grid grid(comm, 1, 1);
  const std::vector<T> panel(z.begin(), z.end());
  std::vector<T> gram(static_cast<std::size_t>(o.columns() * o.columns()));
  const PairedTimes times = time_in_turn(
      comm, o.repeats, [&] { bare_syrk(o, panel, gram); }, [&] { stream_gram(grid, o, z); });
  const double gflop = 1e-9 * static_cast<double>(o.tokens) * static_cast<double>(o.columns()) *
                       static_cast<double>(o.columns() + 1);
  const std::string name = std::is_same_v<T, double> ? "dsyrk" : "ssyrk";
  return report(o, comm,
                {"Gram, one rank, against bare " + name, "GF/s", gflop / times.second, gflop / times.first,
                 times.ratio, 0.95});
}

/// All ranks against one of them, in the same run.
bool against_one_rank(const BenchOptions& o, const Comm& comm, const std::vector<float>& z) {
  const GridShape shape = squarest_grid(comm.size());
  const Grid grid(comm, static_cast<int>(shape.rows), static_cast<int>(shape.columns));
  const Comm alone = comm.split(comm.rank(), 0);
  const Grid single(alone, 1, 1);
  const PairedTimes times = time_in_turn(
      comm, o.repeats,
      [&] {
        if (comm.is_root()) stream_gram(single, o, z);
      },
      [&] { stream_gram(grid, o, z); });
  return report(o, comm,
                {"Gram, all ranks, against one of them", "s", times.second, times.first, times.ratio,
                 comm.size() == 2 ? 1.8 : 0});
}

}  // namespace

bool bench_gram(const BenchOptions& options, const Comm& comm) {
  const auto z = random_rows(kPanelTokens, options.columns());
  if (comm.size() > 1) return against_one_rank(options, comm, z);
  return options.precision == "float64" ? against_syrk<double>(options, comm, z)
                                        : against_syrk<float>(options, comm, z);
}

}  // namespace headspan
