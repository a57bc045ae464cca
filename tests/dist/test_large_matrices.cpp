// ScaLAPACK, BLAS and LAPACK on ranks with very many elements: as many as headspan passes to ScaLAPACK, and
// more than 32 bits can count. The routines are called on submatrices at the end of memory that is hardly
// touched, and compared with closed forms. Not p?syevd and p?gesvd, which are wrong for submatrices of any
// size that do not begin at (1, 1) (ScaLAPACK 2.2.1) and touch all of a whole matrix; not the workspace for
// one.
#include <cmath>
#include <functional>

#include "dist/matrix/linear_algebra.h"
#include "dist/matrix/scalapack.h"
#include "support/grids.h"

namespace headspan {
namespace {

constexpr std::int64_t kBlock = 64;

using Formula = std::function<double(std::int64_t, std::int64_t)>;

/// Second differences: eigenvalues 2 - 2 cos(k pi / (n + 1)).
double second_difference(std::int64_t i, std::int64_t j) {
  return i == j ? 2 : std::abs(i - j) == 1 ? -1 : 0;
}

/// The submatrix that begins at (row, column), as arguments of ScaLAPACK's routines.
struct Part {
  Part(Matrix& whole, std::int64_t row, std::int64_t column, std::int64_t rows, std::int64_t columns)
      : a(whole), first_row(row), first_column(column), m(to_int(rows)), n(to_int(columns)) {}

  /// Calls `visit(i, j, element)` for each element on this rank, with indices from the submatrix's corner.
  void for_own(const std::function<void(std::int64_t, std::int64_t, double&)>& visit) {
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i < m; ++i)
        if (a.owner(first_row + i, first_column + j) == a.grid().comm().rank())
          visit(i, j, *a.at(a.rows().local(first_row + i), a.columns().local(first_column + j)));
  }
  void fill(const Formula& f) {
    for_own([&](std::int64_t i, std::int64_t j, double& element) { element = f(i, j); });
  }

  Matrix& a;
  std::int64_t first_row, first_column;
  int m, n;
  int row = to_int(first_row) + 1, column = to_int(first_column) + 1;
  std::array<int, 9> desc = a.descriptor();
};

/// Returns the side of the largest square matrix that headspan passes to ScaLAPACK.
std::int64_t longest_side(const Grid& grid) {
  const double ranks = grid.comm().size();
  auto side = static_cast<std::int64_t>(std::sqrt(static_cast<double>(kMaxLocalElements) * ranks));
  while (max_local_elements(grid.shape(), side, side, kBlock) > kMaxLocalElements) --side;
  return side;
}

/// Calls `check(matrix, corner)` on every grid, with such a matrix and the corner of its last blocks.
void on_fullest_matrices(const std::function<void(Matrix&, std::int64_t)>& check) {
  on_all_grids([&](const Grid& grid) {
    const std::int64_t side = longest_side(grid), corner = (side / kBlock - 2) * kBlock;
    Matrix a(grid, side, side, kBlock);
    ASSERT_GT(max_local_elements(grid.shape(), side, side, kBlock), kMaxLocalElements / 20 * 19);
    check(a, corner);
    EXPECT_TRUE(a.guards_intact());
  });
}

/// L_jj^2 = (j + 2) / (j + 1), L_(j + 1) j = -1 / L_jj; the inverse as in test_linear_algebra.cpp.
TEST(LargeMatrices, FactorsAndInvertsTheLastBlocks) {
  on_fullest_matrices([](Matrix& a, std::int64_t corner) {
    const std::int64_t n = a.rows().size - corner;
    Part part(a, corner, corner, n, n);
    part.fill(second_difference);
    int info = -1;

    pdpotrf_("L", &part.n, a.data(), &part.row, &part.column, part.desc.data(), &info);

    ASSERT_EQ(info, 0);
    part.for_own([&](std::int64_t i, std::int64_t j, double element) {
      const double pivot = std::sqrt(static_cast<double>(j + 2) / static_cast<double>(j + 1));
      if (j <= i) {
        ASSERT_NEAR(element, i == j ? pivot : i == j + 1 ? -1 / pivot : 0, 1e-13) << i << ", " << j;
      }
    });

    pdpotri_("L", &part.n, a.data(), &part.row, &part.column, part.desc.data(), &info);

    ASSERT_EQ(info, 0);
    part.for_own([&](std::int64_t i, std::int64_t j, double element) {
      const double inverse = static_cast<double>((j + 1) * (n - i)) / static_cast<double>(n + 1);
      if (j <= i) {
        ASSERT_NEAR(element, inverse, 1e-10) << i << ", " << j;
      }
    });
  });
}

/// A product for each of PBLAS's algorithms, which differ in the two operands that are communicated.
TEST(LargeMatrices, MultipliesTheLastRowsAndColumns) {
  const Formula f = [](std::int64_t i, std::int64_t j) { return static_cast<double>(i % 7 + 3 * (j % 5)); };
  const Formula g = [](std::int64_t i, std::int64_t j) { return static_cast<double>(2 * (i % 3) - j % 11); };
  for (const auto& [m, n, k] : {std::array{150, 140, 7}, {7, 150, 140}, {150, 7, 140}})
    on_fullest_matrices([&, m = m, n = n, k = k](Matrix& a, std::int64_t) {
      const std::int64_t side = a.rows().size;
      Matrix b(a.grid(), side, side, kBlock), c(a.grid(), side, side, kBlock);
      Part left(a, side - m, side - k, m, k), right(b, side - k, side - n, k, n),
          product(c, side - m, side - n, m, n);
      left.fill(f);
      right.fill(g);
      const double one = 1, zero = 0;

      pdgemm_("N", "N", &m, &n, &k, &one, a.data(), &left.row, &left.column, left.desc.data(), b.data(),
              &right.row, &right.column, right.desc.data(), &zero, c.data(), &product.row, &product.column,
              product.desc.data());

      product.for_own([&](std::int64_t i, std::int64_t j, double element) {
        double sum = 0;
        for (std::int64_t l = 0; l < k; ++l) sum += f(i, l) * g(l, j);
        ASSERT_EQ(element, sum) << i << ", " << j;
      });
      EXPECT_TRUE(c.guards_intact());
    });
}

TEST(LargeMatrices, TransposesTheLastRowsAndColumns) {
  const Formula f = [](std::int64_t i, std::int64_t j) { return static_cast<double>(1 + i + 1000 * j); };
  for (const auto& [m, n] : {std::array{150, 70}, {70, 150}})
    on_fullest_matrices([&, m = m, n = n](Matrix& a, std::int64_t) {
      const std::int64_t side = a.rows().size;
      Matrix c(a.grid(), side, side, kBlock);
      Part from(a, side - n, side - m, n, m), to(c, side - m, side - n, m, n);
      from.fill(f);
      const double one = 1, zero = 0;

      pdtran_(&m, &n, &one, a.data(), &from.row, &from.column, from.desc.data(), &zero, c.data(), &to.row,
              &to.column, to.desc.data());

      to.for_own([&](std::int64_t i, std::int64_t j, double element) { ASSERT_EQ(element, f(j, i)); });
      EXPECT_TRUE(c.guards_intact());
    });
}

/// A X = B for the X of a formula, A the second differences with rows of zeros below.
TEST(LargeMatrices, SolvesLeastSquaresInTheLastBlocks) {
  const Formula x = [](std::int64_t i, std::int64_t j) { return static_cast<double>(i % 5 - 2 * j); };
  on_fullest_matrices([&](Matrix& a, std::int64_t corner) {
    const std::int64_t m = a.rows().size - corner, n = 70, rhs = 3;
    Matrix b(a.grid(), a.rows().size, a.columns().size, kBlock);
    Part left(a, corner, corner, m, n), right(b, corner, corner, m, rhs);
    left.fill(second_difference);
    right.fill([&](std::int64_t i, std::int64_t j) {
      double sum = 0;
      for (std::int64_t k = 0; k < n; ++k) sum += second_difference(i, k) * x(k, j);
      return sum;
    });
    std::vector<double> work(100'000);
    const int lwork = to_int(static_cast<std::int64_t>(work.size()));
    int info = -1;

    pdgels_("N", &left.m, &left.n, &right.n, a.data(), &left.row, &left.column, left.desc.data(), b.data(),
            &right.row, &right.column, right.desc.data(), work.data(), &lwork, &info);

    ASSERT_EQ(info, 0);
    right.for_own([&](std::int64_t i, std::int64_t j, double element) {
      ASSERT_NEAR(element, i < n ? x(i, j) : 0, 1e-10) << i << ", " << j;
    });
  });
}

constexpr std::int64_t kLarge = 131072;  // squared, more than 2^31 elements on each of up to 6 ranks

/// What is outside the trailing triangle stays unchanged.
TEST(LargeMatrices, UpdatesATrailingMatrixAtTheEnd) {
  on_all_grids([](const Grid& grid) {
    const Formula f = [](std::int64_t i, std::int64_t j) { return static_cast<double>(i % 7 + 3 * (j % 5)); };
    for (const std::int64_t first : {std::int64_t{16384}, std::int64_t{32784}, kLarge - 101}) {
      SCOPED_TRACE("from " + std::to_string(first));
      const std::int64_t k = 16, last = first + 98;
      Matrix a(grid, kLarge, kLarge, kBlock);
      Part part(a, first, first - k, last - first + 1, last - first + k + 1);
      part.fill(f);

      update_trailing_matrix(a, k, first, last);

      part.for_own([&](std::int64_t i, std::int64_t j, double element) {
        double expected = f(i, j);
        if (j >= k && j - k <= i && first + i < last)
          for (std::int64_t c = 0; c < k; ++c) expected -= f(i, c) * f(j - k, c);
        ASSERT_EQ(element, expected) << i << ", " << j;
      });
      EXPECT_TRUE(a.guards_intact());
    }
  });
}

TEST(LargeMatrices, RefusesMoreElementsThanScalapackCounts) {
  on_all_grids([](const Grid& grid) {
    Matrix a(grid, kLarge, kLarge, kBlock), b(grid, kLarge, kLarge, kBlock);
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

/// Columns that are 2^30 elements apart.
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

TEST(LargeMatrices, BlasAndLapackReachFarColumns) {
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

}  // namespace
}  // namespace headspan
