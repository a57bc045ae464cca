#include "dist/matrix/matrix.h"

#include <algorithm>

#include "base/checked.h"

namespace headspan {
namespace {

constexpr double kGuardValue = -9923.0;  // as in ScaLAPACK's tests

}  // namespace

Matrix::Matrix(const Grid& grid, std::int64_t rows, std::int64_t columns, std::int64_t block)
    : grid_(&grid),
      rows_{rows, block, grid.rows(), 0},
      columns_{columns, block, grid.columns(), 0},
      leading_(std::max<std::int64_t>(1, local_rows())),
      elements_(checked_mul(leading_, local_columns(), "a matrix")),
      storage_(checked_mul(elements_ + 2 * kGuard, sizeof(double), "a matrix")) {
  std::fill_n(data() - kGuard, kGuard, kGuardValue);
  std::fill_n(data() + elements_, kGuard, kGuardValue);
}

std::array<int, 9> Matrix::descriptor() const {
  const int row_block = to_int(rows_.block), column_block = to_int(columns_.block);
  return {1, grid_->context(), to_int(rows_.size), to_int(columns_.size), row_block, column_block, 0,
          0, to_int(leading_)};
}

bool Matrix::guards_intact() const {
  const auto intact = [](const double* zone) {
    return std::all_of(zone, zone + kGuard, [](double x) { return x == kGuardValue; });
  };
  return intact(data() - kGuard) && intact(data() + elements_);
}

}  // namespace headspan
