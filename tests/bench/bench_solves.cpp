// solves: all pairs, the choices of forward selection and the layer ceilings, held-out part
// included, with their heavy work on a GPU, where this process sees one, else with the same code on the CPU:
// how far from those of the host, and how much faster. Their time does not depend on the number of tokens.
#include <algorithm>
#include <cmath>

#include <ATen/core/Tensor.h>

#include "bench/bench.h"
#include "bench/streamed_rows.h"
#include "device/device_forward.h"
#include "device/device_layers.h"
#include "device/device_pairs.h"
#include "stats/layers/layer_ceiling.h"
#include "stats/regression/selection.h"

namespace headspan {
namespace {

constexpr std::int64_t kReferences = 5, kPool = 16;
constexpr std::int64_t kInvertAll = 1;
/// Sums of some hundred products of FP64 in another order, of heads that are far from dependent.
constexpr double kAllowed = 1e-9;

RegressionData make_data(const BenchOptions& options, const Grid& grid) {
  const std::int64_t regressors = std::max(kReferences, options.heads) * options.head_size;
  HeadGram fit = stream_gram(grid, options, random_rows(options, regressors + 200, 1));
  HeadGram heldout = stream_gram(grid, options, random_rows(options, regressors + 200, 2));
  return regression_data(row_layout(options), row_rules(options), std::move(fit), std::move(heldout));
}

/// The largest difference; infinite where one has a value and the other none.
double furthest(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) != std::isnan(b[i])) return INFINITY;
    if (!std::isnan(a[i])) most = std::max(most, std::abs(a[i] - b[i]));
  }
  return most;
}

/// `results`: of the host (false) and of the device.
template <class Results>
bool compare(const BenchOptions& options, const Comm& comm, const std::string& what, const Results& results) {
  const double found = comm.max(furthest(results(false), results(true)));
  const bool met = report(options, comm,
                          {what + ", furthest from those of the host", "-", found, kAllowed,
                           found == 0 ? INFINITY : kAllowed / found, 1});
  const TurnTimes times = time_in_turn(
      comm, options.repeats, [&] { results(false); }, [&] { results(true); });
  report(options, comm, {what + ", against the host", "s", times.routine, times.limit, times.speed});
  return met;
}

}  // namespace

bool bench_solves(const BenchOptions& options, const Comm& comm) {
  const GridShape shape = squarest_grid(comm.size());
  const Grid grid(comm, static_cast<int>(shape.rows), static_cast<int>(shape.columns));
  const RegressionData data = make_data(options, grid);
  const PairTable pairs = all_pairs(data);
  const at::Device device = bench_place(options, comm);
  const bool same_pairs = compare(options, comm, "R2 of all pairs", [&](bool on_device) {
    return (on_device ? all_pairs(data, device_pair_sums(device)) : all_pairs(data)).r2_heldout;
  });
  const bool same_choices = compare(options, comm, "R2 of forward selection", [&](bool on_device) {
    const ForwardChoices forward = on_device ? device_forward_choices(device) : ForwardChoices();
    return select(data, pairs, SelectionRule::forward, kReferences, kPool, forward).r2_heldout;
  });
  return compare(options, comm, "Layer ceilings",
                 [&](bool on_device) {
                   const LayerInverse invert = on_device ? device_layer_inverse(device) : LayerInverse();
                   return layer_ceiling(data, kInvertAll, invert).r2_heldout;
                 }) &&
         same_choices && same_pairs;
}

}  // namespace headspan
