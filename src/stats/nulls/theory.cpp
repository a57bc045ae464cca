#include "stats/nulls/theory.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/splitmix64.h"
#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/scalapack.h"
#include "dist/threads.h"

namespace headspan {
namespace {

constexpr double kTwoPi = 6.283185307179586;

/// Returns a standard normal number from two uniform ones in (0, 1] and [0, 1) (Box-Muller).
double normal(SplitMix64& bits) {
  constexpr double scale = 1.0 / 9007199254740992.0;  // 2^-53
  const double radius = (static_cast<double>(bits.next() >> 11) + 1) * scale;
  const double angle = static_cast<double>(bits.next() >> 11) * scale;
  return std::sqrt(-2 * std::log(radius)) * std::cos(kTwoPi * angle);
}

/// Returns a standard normal entry of a trial's [A, B].
double entry(const TheoryRequest& request, std::int64_t trial, std::int64_t row, std::int64_t column) {
  const std::int64_t columns = (request.references + 1) * request.head_size;
  const std::int64_t index = (trial * columns + column) * request.hidden_size + row;
  SplitMix64 bits(SplitMix64(static_cast<std::uint64_t>(request.seed)).next() ^
                  SplitMix64(static_cast<std::uint64_t>(index)).next());
  return normal(bits);
}

/// Returns `columns` columns of a trial's [A, B], from `first` on.
Matrix draw(const Grid& grid, const TheoryRequest& request, std::int64_t trial, std::int64_t first,
            std::int64_t columns) {
  Matrix a(grid, request.hidden_size, columns, kTheoryBlock);
  for (std::int64_t j = 0; j < a.local_columns(); ++j)
    for (std::int64_t i = 0; i < a.local_rows(); ++i)
      *a.at(i, j) =
          entry(request, trial, a.rows().global(grid.row(), i), first + a.columns().global(grid.column(), j));
  return a;
}

/// Returns the sum of squares of the rows from `first` on, on all ranks. Collective over the grid.
double sum_of_squares(const Matrix& a, std::int64_t first) {
  double sum = 0;
  for (std::int64_t j = 0; j < a.local_columns(); ++j)
    for (std::int64_t i = a.rows().local_before(a.grid().row(), first); i < a.local_rows(); ++i)
      sum += *a.at(i, j) * *a.at(i, j);
  a.grid().comm().sum(&sum, 1);
  return sum;
}

/// Computes e of a trial in this process: the rows of Q^T B from n k on, which no C can change.
double local_error(const TheoryRequest& request, std::int64_t trial) {
  const std::int64_t m = request.hidden_size, p = request.references * request.head_size,
                     k = request.head_size;
  std::vector<double> a(to_size(m * (p + k)));
  for (std::int64_t j = 0; j < p + k; ++j)
    for (std::int64_t i = 0; i < m; ++i) a[to_size(i + j * m)] = entry(request, trial, i, j);
  double* b = &a[to_size(m * p)];
  const int rows = to_int(m), columns = to_int(p), targets = to_int(k);
  const int lwork = 64 * std::max(columns, targets);
  std::vector<double> tau(to_size(p)), work(to_size(lwork));
  int info = 0;
  dgeqrf_(&rows, &columns, a.data(), &rows, tau.data(), work.data(), &lwork, &info);
  HS_ASSERT(info == 0);
  dormqr_("L", "T", &rows, &targets, &columns, a.data(), &rows, tau.data(), b, &rows, work.data(), &lwork,
          &info);
  HS_ASSERT(info == 0);
  double sum = 0;
  for (std::int64_t j = 0; j < k; ++j)
    for (std::int64_t i = p; i < m; ++i) sum += b[i + j * m] * b[i + j * m];
  return sum;
}

}  // namespace

TheoryResult run_theory(const Grid& grid, const TheoryRequest& request) {
  const std::int64_t p = request.references * request.head_size;
  HS_ASSERT(p < request.hidden_size);
  TheoryResult result;
  result.local_error.assign(to_size(request.trials), 0.0);
  for (std::int64_t trial = grid.comm().rank(); trial < request.trials; trial += grid.comm().size())
    result.local_error[to_size(trial)] = local_error(request, trial);
  grid.comm().sum(result.local_error.data(), request.trials);
  for (std::int64_t trial = 0; trial < request.trials; ++trial) {
    Matrix a = draw(grid, request, trial, 0, p), b = draw(grid, request, trial, p, request.head_size);
    const double total = sum_of_squares(b, 0);
    solve_least_squares(a, b);
    result.error.push_back(sum_of_squares(b, p));
    result.r2.push_back(1 - result.error.back() / total);
  }
  return result;
}

double expected_error(const TheoryRequest& request) {
  return static_cast<double>(request.head_size) *
         static_cast<double>(request.hidden_size - request.references * request.head_size);
}

double theorem_bound(const TheoryRequest& request) {
  return static_cast<double>(request.head_size) *
         static_cast<double>(request.hidden_size - request.head_size) / 2;
}

}  // namespace headspan
