#include "app/theory.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "base/checked.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/progress.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/threads.h"
#include "io/hdf5/h5_file.h"
#include "io/outputs/publish.h"
#include "stats/nulls/theory.h"

namespace headspan {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The mean R² of all pairs of one stream of a result: held-out if the result has it, else in-sample.
struct Measured {
  std::string stream, variable;
  double r2, null;
};

std::vector<Measured> measured_in(const std::string& path) {
  const H5File file = H5File::open(path);
  std::vector<Measured> all;
  for (const std::string stream : {"k", "q", "v"}) {
    const bool heldout = file.has(stream + "/r2_heldout");
    if (!heldout && !file.has(stream + "/r2")) continue;
    const std::string variable = heldout ? "r2_heldout" : "r2",
                      path_in_file = stream + (heldout ? "/r2_heldout" : "/r2");
    auto dataset = file.open_dataset(path_in_file);
    const std::int64_t heads = dataset.shape().empty() ? 0 : dataset.shape().front();
    if (heads < 1 || dataset.shape() != std::vector<std::int64_t>{heads, heads})
      throw InputError(path, path_in_file, "", "is no table [target, source]",
                       "give a result of headspan study");
    std::vector<double> values(static_cast<std::size_t>(checked_mul(heads, heads, "pairs of a result")));
    dataset.read_rows(0, heads, values.data());
    values.erase(std::remove_if(values.begin(), values.end(), [](double x) { return std::isnan(x); }),
                 values.end());
    const auto null = file.read_attribute<std::vector<double>>(stream, "geometric_null");
    all.push_back({stream, variable, mean(values), null && !null->empty() ? null->front() : NAN});
  }
  if (all.empty())
    throw InputError(path, "", "", "holds no R2 of k, q or v", "give a result of headspan study");
  return all;
}

void print_draws(const TheoryRequest& request, const TheoryResult& result) {
  const double bound = theorem_bound(request), expected = expected_error(request);
  const auto below =
      std::count_if(result.error.begin(), result.error.end(), [&](double e) { return e < bound; });
  double apart = 0;
  for (std::size_t t = 0; t < result.error.size(); ++t)
    apart = std::max(apart, std::abs(result.error[t] - result.local_error[t]) / result.local_error[t]);
  const auto m = static_cast<double>(request.hidden_size), k = static_cast<double>(request.head_size);
  std::printf(
      "min over C of |A C - B|^2, A: [m, n k], B: [m, k] standard normal; m=%lld k=%lld n=%lld trials=%lld "
      "seed=%lld\n",
      static_cast<long long>(request.hidden_size), static_cast<long long>(request.head_size),
      static_cast<long long>(request.references), static_cast<long long>(request.trials),
      static_cast<long long>(request.seed));
  std::printf("minimum=%.10g\nmean=%.10g\nexpected=%.10g  k (m - n k)\n",
              *std::min_element(result.error.begin(), result.error.end()), mean(result.error), expected);
  std::printf("bound=%.10g  k (m - k) / 2, Theorem 2.1 (n = 1)\nshare_below_bound=%.6g\n", bound,
              static_cast<double>(below) / static_cast<double>(result.error.size()));
  std::printf(
      "r2_mean=%.6g\nr2_expected=%.6g  n k / m\nr2_bound=%.6g  1 - (m - k) / (2 m), all that the theorem "
      "says\n",
      mean(result.r2), static_cast<double>(request.references) * k / m, 1 - (m - k) / (2 * m));
  std::printf("p?gels_against_local_qr=%.3g  largest relative difference\n", apart);
}

/// Throws InputError if the matrix [A, B] of a trial has more elements on a rank than ScaLAPACK can count.
/// Local.
void check_size(const TheoryRequest& request, const GridShape& grid) {
  const std::int64_t columns = (request.references + 1) * request.head_size;
  if (max_local_elements(grid, request.hidden_size, columns, kTheoryBlock) <= kMaxLocalElements) return;
  throw InputError("", "theory.hidden_size", std::to_string(request.hidden_size),
                   "leaves, with " + std::to_string(columns) + " columns, more than " +
                       std::to_string(kMaxLocalElements) +
                       " elements on a rank, which ScaLAPACK cannot count",
                   "use more ranks, or smaller sizes");
}

}  // namespace

int theory(const Job::Theory& request, const Comm& world, const Log& log) {
  const double start = steady_seconds();
  set_threads(threads_per_rank(world));
  std::vector<std::vector<Measured>> measured;
  agree(world, [&] {
    for (const std::string& path : request.results) measured.push_back(measured_in(path));
  });
  check_done(world, request.results, log);
  const TheoryRequest draws{request.hidden_size, request.head_size, request.references, request.trials,
                            request.seed};
  const GridShape shape = squarest_grid(world.size());
  agree(world, [&] { check_size(draws, shape); });
  const Grid grid(world, to_int(shape.rows), to_int(shape.columns));
  const TheoryResult result = run_theory(grid, draws);
  if (!world.is_root()) return 0;
  print_draws(draws, result);
  for (std::size_t i = 0; i < measured.size(); ++i)
    for (const Measured& stream : measured[i])
      std::printf("measured=%s stream=%s %s=%.6g geometric_null=%.6g\n", escaped(request.results[i]).c_str(),
                  stream.stream.c_str(), stream.variable.c_str(), stream.r2, stream.null);
  std::printf("status=done units=%lld skipped=0 seconds=%.1f\n", static_cast<long long>(request.trials),
              steady_seconds() - start);
  return 0;
}

}  // namespace headspan
