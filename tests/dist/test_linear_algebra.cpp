// ScaLAPACK's routines on Matrix against closed forms and residuals with ScaLAPACK's own thresholds, on every
// grid, for sizes 0, 1 and around the block. Not ranks with very many elements (test_large_matrices.cpp).
#include <cmath>
#include <functional>
#include <limits>

#include "dist/matrix/linear_algebra.h"
#include "support/grids.h"

namespace headspan {
namespace {

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr std::int64_t kBlock = 3;
const std::int64_t kSizes[] = {0, 1, kBlock - 1, kBlock, kBlock + 1, 31};

using Formula = std::function<double(std::int64_t, std::int64_t)>;

Matrix filled(const Grid& grid, std::int64_t rows, std::int64_t columns, const Formula& f) {
  Matrix a(grid, rows, columns, kBlock);
  for (std::int64_t j = 0; j < a.local_columns(); ++j)
    for (std::int64_t i = 0; i < a.local_rows(); ++i)
      *a.at(i, j) = f(a.rows().global(grid.row(), i), a.columns().global(grid.column(), j));
  return a;
}

/// Returns the whole matrix on every rank, column-major.
std::vector<double> gathered(const Matrix& a) {
  const Grid& grid = a.grid();
  std::vector<double> all(static_cast<std::size_t>(a.rows().size * a.columns().size), 0.0);
  for (std::int64_t j = 0; j < a.local_columns(); ++j)
    for (std::int64_t i = 0; i < a.local_rows(); ++i)
      all[static_cast<std::size_t>(a.rows().global(grid.row(), i) +
                                   a.columns().global(grid.column(), j) * a.rows().size)] = *a.at(i, j);
  grid.comm().sum(all.data(), static_cast<std::int64_t>(all.size()));
  return all;
}

/// Second differences: eigenvalues 2 - 2 cos(k pi / (n + 1)), condition (2 n / pi)^2.
double second_difference(std::int64_t i, std::int64_t j) {
  return i == j ? 2 : std::abs(i - j) == 1 ? -1 : 0;
}

double lower_only(std::int64_t i, std::int64_t j) { return i >= j ? second_difference(i, j) : 1e30; }

void on_grids_and_sizes(const std::function<void(const Grid&, std::int64_t)>& check) {
  on_all_grids([&](const Grid& grid) {
    for (const std::int64_t n : kSizes) {
      SCOPED_TRACE("size " + std::to_string(n));
      check(grid, n);
    }
  });
}

TEST(LinearAlgebra, MirrorsTheLowerTriangle) {
  on_grids_and_sizes([](const Grid& grid, std::int64_t n) {
    Matrix a = filled(grid, n, n, [](std::int64_t i, std::int64_t j) {
      return i >= j ? 100.0 * static_cast<double>(i) + static_cast<double>(j) : -1.0;
    });

    mirror_lower(a);

    const std::vector<double> all = gathered(a);
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i < n; ++i)
        ASSERT_EQ(all[static_cast<std::size_t>(i + j * n)],
                  100.0 * static_cast<double>(std::max(i, j)) + static_cast<double>(std::min(i, j)));
    EXPECT_TRUE(a.guards_intact());
  });
}

/// ||A - L L^T|| / (||A|| n eps) <= 3 as in ScaLAPACK's LLT test, 1-norms.
TEST(LinearAlgebra, CholeskyPassesScalapacksThreshold) {
  on_grids_and_sizes([](const Grid& grid, std::int64_t n) {
    Matrix a = filled(grid, n, n, lower_only);

    ASSERT_TRUE(factor_cholesky(a));

    const std::vector<double> l = gathered(a);
    double residual = 0;
    for (std::int64_t j = 0; j < n; ++j) {
      double column = 0;
      for (std::int64_t i = 0; i < n; ++i) {
        double sum = 0;
        for (std::int64_t k = 0; k <= std::min(i, j); ++k)
          sum += l[static_cast<std::size_t>(i + k * n)] * l[static_cast<std::size_t>(j + k * n)];
        column += std::abs(second_difference(i, j) - sum);
      }
      residual = std::max(residual, column);
    }
    EXPECT_LE(residual, 3 * 4 * static_cast<double>(n) * kEps);
    EXPECT_TRUE(a.guards_intact());
  });
}

/// (A^-1)_ij = min(i, j) (n + 1 - max(i, j)) / (n + 1), counted from 1.
TEST(LinearAlgebra, InverseHasItsClosedForm) {
  on_grids_and_sizes([](const Grid& grid, std::int64_t n) {
    Matrix a = filled(grid, n, n, lower_only);

    ASSERT_TRUE(factor_cholesky(a) && invert_cholesky(a));

    const std::vector<double> inverse = gathered(a);
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = j; i < n; ++i)
        ASSERT_NEAR(inverse[static_cast<std::size_t>(i + j * n)],
                    static_cast<double>((j + 1) * (n - i)) / static_cast<double>(n + 1),
                    1e-12 * static_cast<double>(n));
  });
}

TEST(LinearAlgebra, RefusesWhatIsNotPositiveDefinite) {
  on_all_grids([](const Grid& grid) {
    Matrix a = filled(grid, 10, 10,
                      [](std::int64_t i, std::int64_t j) { return i == j ? (i == 7 ? -1.0 : 1.0) : 0.0; });
    EXPECT_FALSE(factor_cholesky(a));
  });
}

TEST(LinearAlgebra, MultipliesByTheFormula) {
  on_all_grids([](const Grid& grid) {
    const Formula f = [](std::int64_t i, std::int64_t j) {
      return std::sin(static_cast<double>(3 * i + 7 * j));
    };
    const Formula g = [](std::int64_t i, std::int64_t j) {
      return std::cos(static_cast<double>(5 * i - 2 * j));
    };
    const Matrix a = filled(grid, 10, 7, f), b = filled(grid, 7, 8, g);
    Matrix product(grid, 10, 8, kBlock);

    multiply(a, b, product);

    const std::vector<double> all = gathered(product);
    for (std::int64_t i = 0; i < 10; ++i)
      for (std::int64_t j = 0; j < 8; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < 7; ++k) sum += f(i, k) * g(k, j);
        ASSERT_NEAR(all[static_cast<std::size_t>(i + j * 10)], sum, 1e-14);
      }
  });
}

/// Bounds of PBLAS's buffers. With the first two, an inner dimension of 17 or more is divided into several
/// calls, of one column each and of a few that no block is a multiple of; with the last there is one call.
constexpr std::int64_t kBuffered[] = {1, 100, kMaxBufferElements};

TEST(LinearAlgebra, MultipliesTransposedInSeveralCalls) {
  const Formula f = [](std::int64_t i, std::int64_t j) { return static_cast<double>(i * i % 13 + 5 * j); };
  on_all_grids([&](const Grid& grid) {
    const std::int64_t m = 47, n = 11;
    const Matrix a = filled(grid, m, n, f);
    for (const std::int64_t max_buffered : kBuffered) {
      SCOPED_TRACE("buffers of " + std::to_string(max_buffered));
      Matrix square(grid, n, n, kBlock);

      multiply_transposed(a, square, max_buffered);

      const std::vector<double> lower = gathered(square);
      for (std::int64_t i = 0; i < n; ++i)
        for (std::int64_t j = 0; j <= i; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < m; ++k) sum += f(k, i) * f(k, j);
          ASSERT_EQ(lower[static_cast<std::size_t>(i + j * n)], sum) << i << ", " << j;
        }
      EXPECT_TRUE(square.guards_intact());
    }
  });
}

TEST(LinearAlgebra, UpdatesATrailingMatrix) {
  const Formula f = [](std::int64_t i, std::int64_t j) { return static_cast<double>(i * i % 13 + 5 * j); };
  on_all_grids([&](const Grid& grid) {
    const std::int64_t n = 31, first = 20, last = 29;
    for (const std::int64_t k : {std::int64_t{2}, std::int64_t{17}})
      for (const std::int64_t max_buffered : kBuffered) {
        SCOPED_TRACE(std::to_string(k) + " columns, buffers of " + std::to_string(max_buffered));
        Matrix a = filled(grid, n, n, f);

        update_trailing_matrix(a, k, first, last, max_buffered);

        const std::vector<double> all = gathered(a);
        for (std::int64_t i = 0; i < n; ++i)
          for (std::int64_t j = 0; j <= i; ++j) {
            double expected = f(i, j);
            if (j >= first && i < last)
              for (std::int64_t c = first - k; c < first; ++c) expected -= f(i, c) * f(j, c);
            ASSERT_EQ(all[static_cast<std::size_t>(i + j * n)], expected) << i << ", " << j;
          }
        EXPECT_TRUE(a.guards_intact());
      }
  });
}

TEST(LinearAlgebra, EigenvaluesOfSecondDifferences) {
  on_grids_and_sizes([](const Grid& grid, std::int64_t n) {
    Matrix a = filled(grid, n, n, lower_only);

    const std::vector<double> values = eigenvalues(a);

    ASSERT_EQ(static_cast<std::int64_t>(values.size()), n);
    for (std::int64_t k = 0; k < n; ++k)
      EXPECT_NEAR(values[static_cast<std::size_t>(k)],
                  2 - 2 * std::cos(static_cast<double>(n - k) * M_PI / static_cast<double>(n + 1)),
                  20 * 4 * kEps);
    EXPECT_TRUE(a.guards_intact());
  });
}

/// Unit variances and equal correlations r: eigenvalues 1 - r and 1 + (n - 1) r, whatever the columns' units.
TEST(LinearAlgebra, EqualCorrelationsAreSemidefiniteDownToMinusOneOverTheOthers) {
  constexpr std::int64_t n = 5;
  constexpr double error = 1e-6, bound = -1.0 / (n - 1);
  const auto holds = [](double r, double min_diagonal = 0) {
    std::vector<double> a, unit{1e-70, 1, 1e60, 3, 1e-5};
    for (const double x : unit)
      for (const double y : unit) a.push_back(x * y * (a.size() % (n + 1) == 0 ? 1 : r));
    for (std::size_t j = 1; j < n; ++j) a[j * n] = 1e300;  // above the diagonal: never to be read
    return is_semidefinite(a, n, std::vector<double>(n, min_diagonal), error);
  };

  EXPECT_TRUE(holds(bound));
  EXPECT_TRUE(holds(bound - 0.9 * error * n / (n - 1)));  // at r, 1 + (n - 1) r = -0.9 n error
  EXPECT_FALSE(holds(bound - 1.1 * error * n / (n - 1)));
  EXPECT_FALSE(holds(-1));
  EXPECT_TRUE(holds(bound - 0.05, 1e-100));  // without the first row r may be -1/3
  EXPECT_FALSE(holds(-0.34, 1e-100));
  EXPECT_TRUE(holds(-1, 1e200));  // no row is left
}

/// B_ij = 1 for j <= i < n: singular values 1 / (2 sin((2 k - 1) pi / (4 n + 2))); rows of zeros below.
TEST(LinearAlgebra, SingularValuesOfPartialSums) {
  for (const std::int64_t more_rows : {0, 4})
    on_grids_and_sizes([&](const Grid& grid, std::int64_t n) {
      Matrix a = filled(grid, n + more_rows, n,
                        [n](std::int64_t i, std::int64_t j) { return i >= j && i < n ? 1 : 0; });

      const std::vector<double> values = singular_values(a);

      ASSERT_EQ(static_cast<std::int64_t>(values.size()), n);
      for (std::int64_t k = 0; k < n; ++k)
        EXPECT_NEAR(
            values[static_cast<std::size_t>(k)],
            1 / (2 * std::sin(static_cast<double>(2 * k + 1) * M_PI / static_cast<double>(4 * n + 2))),
            20 * static_cast<double>(n) * kEps);
      EXPECT_TRUE(a.guards_intact());
    });
}

}  // namespace
}  // namespace headspan
