// ScaLAPACK's routines on Matrix against closed forms and residuals with ScaLAPACK's own thresholds, on every
// grid, for sizes 0, 1 and around the block; and what they, BLAS and LAPACK do where a rank holds more
// elements than 32 bits count, in memory of which little is touched.
#include <cmath>
#include <functional>
#include <limits>

#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/scalapack.h"
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

/// The whole matrix on every rank, column-major.
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

TEST(LinearAlgebra, ProductsAreThoseOfTheFormula) {
  on_all_grids([](const Grid& grid) {
    const Formula f = [](std::int64_t i, std::int64_t j) {
      return std::sin(static_cast<double>(3 * i + 7 * j));
    };
    const Formula g = [](std::int64_t i, std::int64_t j) {
      return std::cos(static_cast<double>(5 * i - 2 * j));
    };
    const Matrix a = filled(grid, 10, 7, f), b = filled(grid, 7, 8, g);
    Matrix product(grid, 10, 8, kBlock), square(grid, 7, 7, kBlock);

    multiply(a, b, product);
    multiply_transposed(a, square);

    const std::vector<double> all = gathered(product), lower = gathered(square);
    for (std::int64_t i = 0; i < 10; ++i)
      for (std::int64_t j = 0; j < 8; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < 7; ++k) sum += f(i, k) * g(k, j);
        ASSERT_NEAR(all[static_cast<std::size_t>(i + j * 10)], sum, 1e-14);
      }
    for (std::int64_t i = 0; i < 7; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < 10; ++k) sum += f(k, i) * f(k, j);
        ASSERT_NEAR(lower[static_cast<std::size_t>(i + j * 7)], sum, 1e-14);
      }
  });
}

TEST(LinearAlgebra, SubtractsAPanelsProductFromWhatIsBehindIt) {
  on_all_grids([](const Grid& grid) {
    const Formula f = [](std::int64_t i, std::int64_t j) {
      return std::sin(static_cast<double>(3 * i + 7 * j));
    };
    const std::int64_t n = 13, first = 5, k = 2, last = 11;
    Matrix a = filled(grid, n, n, f);

    subtract_own_product(a, k, first, last);

    const std::vector<double> all = gathered(a);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        double expected = f(i, j);
        if (j >= first && i < last)
          for (std::int64_t c = first - k; c < first; ++c) expected -= f(i, c) * f(j, c);
        ASSERT_NEAR(all[static_cast<std::size_t>(i + j * n)], expected, 1e-14) << i << ", " << j;
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

constexpr std::int64_t kLarge = 131072;  // squared, more than 2^31 elements on each of up to 6 ranks

/// C_ij = f(i, j) of columns first - k .. last of the trailing triangle; what is before and behind stays.
TEST(LinearAlgebra, SubtractsAPanelsProductFarBehind) {
  on_all_grids([](const Grid& grid) {
    const Formula f = [](std::int64_t i, std::int64_t j) { return static_cast<double>(i % 7 + 3 * (j % 5)); };
    for (const std::int64_t first : {std::int64_t{16384}, std::int64_t{32784}, kLarge - 101}) {
      SCOPED_TRACE("from " + std::to_string(first));
      const std::int64_t k = 16, last = first + 98;
      Matrix a(grid, kLarge, kLarge, 64);
      const auto for_own = [&](const auto& visit) {
        for (std::int64_t j = first - k; j <= last; ++j)
          for (std::int64_t i = first; i <= last; ++i)
            if (a.owner(i, j) == grid.comm().rank())
              visit(i, j, *a.at(a.rows().local(i), a.columns().local(j)));
      };
      for_own([&](std::int64_t i, std::int64_t j, double& element) { element = f(i, j); });

      subtract_own_product(a, k, first, last);

      for_own([&](std::int64_t i, std::int64_t j, double& element) {
        double expected = f(i, j);
        if (j >= first && j <= i && i < last)
          for (std::int64_t c = first - k; c < first; ++c) expected -= f(i, c) * f(j, c);
        ASSERT_EQ(element, expected) << i << ", " << j;
      });
      EXPECT_TRUE(a.guards_intact());
    }
  });
}

TEST(LinearAlgebra, RefusesMoreElementsThanScalapackCounts) {
  on_all_grids([](const Grid& grid) {
    Matrix a(grid, kLarge, kLarge, 64), b(grid, kLarge, kLarge, 64);
    EXPECT_THROW(factor_cholesky(a), Error);
    EXPECT_THROW(invert_cholesky(a), Error);
    EXPECT_THROW(mirror_lower(a), Error);
    EXPECT_THROW(multiply(a, a, b), Error);
    EXPECT_THROW(singular_values(a), Error);
    EXPECT_THROW(solve_least_squares(a, b), Error);
    if (grid.comm().size() == 1) return;  // BLAS and LAPACK below
    EXPECT_THROW(multiply_transposed(a, b), Error);
    EXPECT_THROW(eigenvalues(a), Error);
  });
}

/// Columns that lie 2^30 elements apart.
class FarColumns {
 public:
  explicit FarColumns(const Formula& f) : pages_(kDistance * (kCount - 1) * 8 + 4096) {
    for (std::int64_t j = 0; j < kCount; ++j)
      for (std::int64_t i = 0; i < kCount; ++i) at(i, j) = f(i, j);
  }
  double* data() { return static_cast<double*>(pages_.data()); }
  double& at(std::int64_t i, std::int64_t j) { return data()[i + j * kDistance]; }

  static constexpr std::int64_t kDistance = std::int64_t{1} << 30;
  static constexpr int kCount = 5, kLeading = static_cast<int>(kDistance);

 private:
  ZeroPages pages_;
};

TEST(LinearAlgebra, BlasAndLapackReachFarColumns) {
  if (Comm::duplicate(MPI_COMM_WORLD).size() > 1) GTEST_SKIP() << "on one rank";
  constexpr int n = FarColumns::kCount, ld = FarColumns::kLeading;
  const double one = 1, zero = 0;
  const Formula f = [](std::int64_t i, std::int64_t j) { return static_cast<double>(1 + i + 10 * j); };
  const auto product = [&](std::int64_t i, std::int64_t j) {
    double sum = 0;
    for (std::int64_t k = 0; k < n; ++k) sum += f(i, k) * f(j, k);
    return sum;
  };
  FarColumns a(f), c(f), lower(f), factor(second_difference), values(second_difference);

  dgemm_("N", "T", &n, &n, &n, &one, a.data(), &ld, a.data(), &ld, &zero, c.data(), &ld);
  dsyrk_("L", "N", &n, &n, &one, a.data(), &ld, &zero, lower.data(), &ld);
  for (std::int64_t j = 0; j < n; ++j)
    for (std::int64_t i = 0; i < n; ++i) {
      EXPECT_EQ(c.at(i, j), product(i, j));
      EXPECT_EQ(lower.at(i, j), i >= j ? product(i, j) : f(i, j));
    }

  int info = -1;
  dpotrf_("L", &n, factor.data(), &ld, &info);
  ASSERT_EQ(info, 0);
  for (int j = 0; j < n; ++j) EXPECT_NEAR(factor.at(j, j), std::sqrt((j + 2.0) / (j + 1.0)), 1e-14);
  const std::vector<double> found = local_eigenvalues(values.data(), n, ld);
  for (int k = 0; k < n; ++k)
    EXPECT_NEAR(found[static_cast<std::size_t>(k)], 2 - 2 * std::cos((n - k) * M_PI / (n + 1)), 1e-14);
}

/// Unit variances and equal correlations r: eigenvalues 1 - r and 1 + (n - 1) r, whatever the columns' units.
TEST(LinearAlgebra, EqualCorrelationsAreSemidefiniteDownToMinusOneOverTheOthers) {
  constexpr std::int64_t n = 5;
  constexpr double error = 1e-6, bound = -1.0 / (n - 1);
  const auto holds = [](double r, double least = 0) {
    std::vector<double> a, unit{1e-70, 1, 1e60, 3, 1e-5};
    for (const double x : unit)
      for (const double y : unit) a.push_back(x * y * (a.size() % (n + 1) == 0 ? 1 : r));
    for (std::size_t j = 1; j < n; ++j) a[j * n] = 1e300;  // above the diagonal: never to be read
    return is_semidefinite(a, n, std::vector<double>(n, least), error);
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
