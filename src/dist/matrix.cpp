#include "dist/matrix.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include <sys/mman.h>

#include "base/checked.h"

namespace headspan {
namespace {

constexpr double kGuardValue = -9923.0;  // ScaLAPACK's own tests use the same
constexpr std::size_t kHugePage = std::size_t{1} << 21;

double* allocate(std::int64_t elements) {
  const auto bytes = static_cast<std::size_t>(checked_mul(elements, 8, "a matrix"));
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  void* memory = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (memory == nullptr) throw std::bad_alloc();
  if (alignment == kHugePage)
    madvise(memory, bytes, MADV_HUGEPAGE);  // advice only: refusal costs time, not results
  return static_cast<double*>(memory);
}

}  // namespace

void Matrix::Free::operator()(double* p) const { std::free(p); }

Matrix::Matrix(const Grid& grid, std::int64_t rows, std::int64_t columns, std::int64_t block)
    : grid_(&grid),
      rows_{rows, block, grid.rows(), 0},
      columns_{columns, block, grid.columns(), 0},
      leading_(std::max<std::int64_t>(1, local_rows())),
      elements_(checked_mul(leading_, local_columns(), "a matrix")),
      storage_(allocate(elements_ + 2 * kGuard)) {
  std::fill_n(storage_.get(), kGuard, kGuardValue);
  std::fill_n(data(), elements_, 0.0);
  std::fill_n(data() + elements_, kGuard, kGuardValue);
}

std::array<int, 9> Matrix::descriptor() const {
  return {1,
          grid_->context(),
          to_int(rows_.size),
          to_int(columns_.size),
          to_int(rows_.block),
          to_int(columns_.block),
          0,
          0,
          to_int(leading_)};
}

bool Matrix::guards_intact() const {
  const auto intact = [](const double* zone) {
    return std::all_of(zone, zone + kGuard, [](double x) { return x == kGuardValue; });
  };
  return intact(storage_.get()) && intact(data() + elements_);
}

}  // namespace headspan
