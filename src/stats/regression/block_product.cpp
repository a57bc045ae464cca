#include "stats/regression/block_product.h"

#include <algorithm>
#include <cstring>

#include "base/process/cpu_dispatch.h"

namespace headspan {
namespace {

struct Operands {
  std::int64_t m, n, k;
  const double *a, *b;
  double* c;
  std::int64_t ldc;
  bool square;  // c is symmetric: only its lower triangle is wanted
};

/// Updates the tile of `Vectors` vectors of rows from `row` on and `Columns` columns from `column` on.
template <int Lanes, int Vectors, int Columns>
HS_INLINED inline void subtract_tile(const Operands& block, std::int64_t row, std::int64_t column) {
  constexpr int kLanes = Lanes / 2;  // of 8 bytes
  typedef double Doubles __attribute__((vector_size(8 * kLanes)));
  Doubles sums[Columns][Vectors] = {};
  const double *a = block.a + row, *b = block.b + column;
  for (std::int64_t t = 0; t < block.k; ++t, a += block.m, b += block.n) {
    Doubles x[Vectors];
    std::memcpy(x, a, sizeof x);
#pragma GCC unroll 8
    for (int j = 0; j < Columns; ++j) {
      const Doubles y = b[j] - Doubles{};
#pragma GCC unroll 3
      for (int r = 0; r < Vectors; ++r) sums[j][r] += x[r] * y;
    }
  }
#pragma GCC unroll 8
  for (int j = 0; j < Columns; ++j) {
    double* const to = block.c + row + (column + j) * block.ldc;
    Doubles values[Vectors];
    std::memcpy(values, to, sizeof values);
#pragma GCC unroll 3
    for (int r = 0; r < Vectors; ++r) values[r] -= sums[j][r];
    std::memcpy(to, values, sizeof values);
  }
}

/// Updates the last rows, which do not fill a vector.
HS_INLINED inline void subtract_rows(const Operands& block, std::int64_t row, std::int64_t column,
                                     std::int64_t columns) {
  for (std::int64_t j = column; j < column + columns; ++j)
    for (std::int64_t i = row; i < block.m; ++i) {
      double sum = 0;
      for (std::int64_t t = 0; t < block.k; ++t) sum += block.a[i + t * block.m] * block.b[j + t * block.n];
      block.c[i + j * block.ldc] -= sum;
    }
}

struct SubtractProduct {
  template <int Lanes>
  HS_INLINED static void run(const Operands* operands) {
    constexpr int kLanes = Lanes / 2, kColumns = Lanes == 16 ? 8 : 4, kVectors = Lanes == 4 ? 2 : 3;
    const Operands& block = *operands;
    for (std::int64_t column = 0, columns; column < block.n; column += columns) {
      columns = next_part(block.n - column, kColumns);
      std::int64_t row = block.square ? column / kLanes * kLanes : 0;
      with_constant<kColumns>(columns, [&](auto width) HS_INLINED {
        for (std::int64_t vectors; block.m - row >= kLanes; row += vectors * kLanes) {
          vectors = next_part((block.m - row) / kLanes, kVectors);
          with_constant<kVectors>(vectors, [&](auto height) HS_INLINED {
            subtract_tile<Lanes, height.value, width.value>(block, row, column);
          });
        }
      });
      subtract_rows(block, row, column, columns);
    }
  }
};

}  // namespace

void subtract_block_product(std::int64_t m, std::int64_t n, std::int64_t k, const double* a, const double* b,
                            double* c, std::int64_t ldc, int lanes) {
  const Operands block{m, n, k, a, b, c, ldc, false};
  run_with<SubtractProduct>(lanes, &block);
}

void subtract_block_square(std::int64_t m, std::int64_t k, const double* a, double* c, std::int64_t ldc,
                           int lanes) {
  const Operands block{m, m, k, a, a, c, ldc, true};
  run_with<SubtractProduct>(lanes, &block);
}

}  // namespace headspan
