#include "dist/matrix/linear_algebra.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/checked.h"
#include "dist/matrix/scalapack.h"

namespace headspan {
namespace {

constexpr int kFirst = 1;  // ScaLAPACK's indices begin at 1

/// Returns the descriptor of a matrix. Throws Error if ScaLAPACK cannot count its elements on each rank.
std::array<int, 9> descriptor_of(const Matrix& a) {
  const std::int64_t elements =
      max_local_elements(a.grid().shape(), a.rows().size, a.columns().size, a.rows().block);
  if (elements > kMaxLocalElements)
    throw Error("a matrix of " + std::to_string(a.rows().size) + " x " + std::to_string(a.columns().size) +
                " leaves " + std::to_string(elements) +
                " elements on a rank, more than ScaLAPACK can count; use more ranks");
  return a.descriptor();
}

/// Returns how much of the inner dimension of a product with result C one call may take.
std::int64_t inner_step(const Matrix& c, std::int64_t max_buffered) {
  const std::int64_t side = std::max(c.rows().local_size(0), c.columns().local_size(0));
  return std::max<std::int64_t>(1, max_buffered / std::max<std::int64_t>(1, side));
}

constexpr std::int64_t eigenvector_workspace(std::int64_t n) { return 1 + 6 * n + 2 * n * n; }

static_assert(eigenvector_workspace(kMaxEigenvectors) <= std::numeric_limits<int>::max() &&
              eigenvector_workspace(kMaxEigenvectors + 1) > std::numeric_limits<int>::max());

/// Throws Error if `info` is negative: it is the number of an invalid argument then.
void check_info(const char* routine, int info) {
  if (info < 0)
    throw Error(std::string("ScaLAPACK ") + routine + ": argument " + std::to_string(-info) + " is invalid");
}

void check_converged(const char* routine, int info) {
  check_info(routine, info);
  if (info > 0)
    throw Error(std::string("ScaLAPACK ") + routine + " did not converge: info = " + std::to_string(info));
}

/// Converts the size of a workspace, which ScaLAPACK returns as a double.
int workspace_size(double answer) { return to_int(static_cast<std::int64_t>(answer)) + 1; }

std::vector<double> scalapack_eigenvalues(Matrix& a) {
  Matrix vectors(a.grid(), a.rows().size, a.columns().size, a.rows().block);
  const auto desc = descriptor_of(a);
  std::vector<double> values(static_cast<std::size_t>(desc[2])), work(1);
  std::vector<int> iwork(1);
  int lwork = -1, liwork = -1, info = 0;
  const auto call = [&] {
    pdsyevd_("V", "L", &desc[2], a.data(), &kFirst, &kFirst, desc.data(), values.data(), vectors.data(),
             &kFirst, &kFirst, desc.data(), work.data(), &lwork, iwork.data(), &liwork, &info);
  };
  call();
  check_info("pdsyevd", info);
  // ScaLAPACK 2.2 leaves out what p?ormtr needs: (local rows + columns + block) block.
  const std::int64_t block = a.rows().block, sides = a.rows().local_size(0) + a.columns().local_size(0);
  lwork = to_int(workspace_size(work[0]) + (sides + 2 * block) * block);
  liwork = iwork[0];
  work.resize(static_cast<std::size_t>(lwork));
  iwork.resize(static_cast<std::size_t>(liwork));
  call();
  check_converged("pdsyevd", info);
  // If the matrix is one block, only its owner gets the values; on different processors ranks may differ.
  a.grid().comm().broadcast(values.data(), desc[2], 0);
  return values;
}

}  // namespace

std::int64_t max_local_elements(const GridShape& grid, std::int64_t rows, std::int64_t columns,
                                std::int64_t block) {
  const BlockCyclic row_axis{rows, block, to_int(grid.rows), 0},
      column_axis{columns, block, to_int(grid.columns), 0};
  return checked_mul(row_axis.local_size(0), column_axis.local_size(0), "a matrix");
}

void scale_both_sides(Matrix& a, const std::vector<double>& scale) {
  const auto factor = [&](std::int64_t global) { return scale[static_cast<std::size_t>(global)]; };
  for (std::int64_t j = 0; j < a.local_columns(); ++j) {
    const double right = factor(a.columns().global(a.grid().column(), j));
    for (std::int64_t i = 0; i < a.local_rows(); ++i)
      *a.at(i, j) *= right * factor(a.rows().global(a.grid().row(), i));
  }
}

void mirror_lower(Matrix& a) {
  const Grid& grid = a.grid();
  Matrix transposed(grid, a.rows().size, a.columns().size, a.rows().block);
  const auto desc = descriptor_of(a);
  const double one = 1, zero = 0;
  pdtran_(&desc[2], &desc[3], &one, a.data(), &kFirst, &kFirst, desc.data(), &zero, transposed.data(),
          &kFirst, &kFirst, desc.data());
  for (std::int64_t j = 0; j < a.local_columns(); ++j) {
    const std::int64_t above = a.rows().local_before(grid.row(), a.columns().global(grid.column(), j));
    std::copy_n(transposed.at(0, j), above, a.at(0, j));
  }
}

bool factor_cholesky(Matrix& a) {
  const auto desc = descriptor_of(a);
  int info = 0;
  pdpotrf_("L", &desc[2], a.data(), &kFirst, &kFirst, desc.data(), &info);
  check_info("pdpotrf", info);
  return info == 0;
}

bool invert_cholesky(Matrix& l) {
  const auto desc = descriptor_of(l);
  int info = 0;
  pdpotri_("L", &desc[2], l.data(), &kFirst, &kFirst, desc.data(), &info);
  check_info("pdpotri", info);
  return info == 0;
}

void multiply(const Matrix& a, const Matrix& b, Matrix& c) {
  const auto desc_a = descriptor_of(a), desc_b = descriptor_of(b), desc_c = descriptor_of(c);
  const double one = 1, zero = 0;
  pdgemm_("N", "N", &desc_c[2], &desc_c[3], &desc_a[3], &one, a.data(), &kFirst, &kFirst, desc_a.data(),
          b.data(), &kFirst, &kFirst, desc_b.data(), &zero, c.data(), &kFirst, &kFirst, desc_c.data());
}

void multiply_transposed(const Matrix& a, Matrix& c, std::int64_t max_buffered) {
  const double one = 1, zero = 0;
  if (a.grid().comm().size() == 1) {
    const int n = to_int(c.columns().size), k = to_int(a.rows().size), lda = to_int(a.leading()),
              ldc = to_int(c.leading());
    dsyrk_("L", "T", &n, &k, &one, a.data(), &lda, &zero, c.data(), &ldc);
    return;
  }
  const auto desc_a = descriptor_of(a), desc_c = descriptor_of(c);
  const std::int64_t rows = a.rows().size, step = inner_step(c, max_buffered);
  std::int64_t done = 0;
  do {
    const int inner = to_int(std::min(step, rows - done)), row = to_int(done) + 1;
    pdsyrk_("L", "T", &desc_c[2], &inner, &one, a.data(), &row, &kFirst, desc_a.data(),
            done == 0 ? &zero : &one, c.data(), &kFirst, &kFirst, desc_c.data());
    done += step;
  } while (done < rows);
}

void update_trailing_matrix(Matrix& a, std::int64_t k, std::int64_t first, std::int64_t last,
                            std::int64_t max_buffered) {
  const auto desc = a.descriptor();
  const int n = to_int(last - first), corner = to_int(first) + 1;
  const double minus_one = -1, one = 1;
  if (n == 0) return;
  const std::int64_t step = inner_step(a, max_buffered);
  for (std::int64_t done = 0; done < k; done += step) {
    const int inner = to_int(std::min(step, k - done)), column = to_int(first - k + done) + 1;
    pdsyrk_("L", "N", &n, &inner, &minus_one, a.data(), &corner, &column, desc.data(), &one, a.data(),
            &corner, &corner, desc.data());
  }
}

void solve_least_squares(Matrix& a, Matrix& b) {
  const auto desc_a = descriptor_of(a), desc_b = descriptor_of(b);
  std::vector<double> work(1);
  int lwork = -1, info = 0;
  const auto call = [&] {
    pdgels_("N", &desc_a[2], &desc_a[3], &desc_b[3], a.data(), &kFirst, &kFirst, desc_a.data(), b.data(),
            &kFirst, &kFirst, desc_b.data(), work.data(), &lwork, &info);
  };
  call();
  check_info("pdgels", info);
  lwork = workspace_size(work[0]);
  work.resize(static_cast<std::size_t>(lwork));
  call();
  check_info("pdgels", info);
}

std::vector<double> eigenvalues(Matrix& a) {
  if (a.rows().size == 0) return {};
  if (a.grid().comm().size() == 1) return local_eigenvalues(a.data(), a.rows().size, a.leading());
  std::vector<double> values = scalapack_eigenvalues(a);
  std::reverse(values.begin(), values.end());
  return values;
}

std::vector<double> local_eigenvalues(double* a, std::int64_t size, std::int64_t ld) {
  const int n = to_int(size), lda = to_int(ld), lwork = 2 * n + 1, liwork = 1;
  std::vector<double> values(static_cast<std::size_t>(n)), work(static_cast<std::size_t>(lwork));
  int iwork = 0, info = 0;
  dsyevd_("N", "L", &n, a, &lda, values.data(), work.data(), &lwork, &iwork, &liwork, &info);
  if (info != 0) throw Error("LAPACK dsyevd: " + std::to_string(info) + " eigenvalues did not converge");
  std::reverse(values.begin(), values.end());
  return values;
}

std::vector<double> local_eigenvectors(double* a, std::int64_t size) {
  const int n = to_int(size), liwork = 3 + 5 * n, lwork = to_int(eigenvector_workspace(size));
  std::vector<double> values(static_cast<std::size_t>(n)), work(static_cast<std::size_t>(lwork));
  std::vector<int> iwork(static_cast<std::size_t>(liwork));
  int info = 0;
  dsyevd_("V", "L", &n, a, &n, values.data(), work.data(), &lwork, iwork.data(), &liwork, &info);
  if (info != 0) throw Error("LAPACK dsyevd: " + std::to_string(info) + " eigenvalues did not converge");
  std::reverse(values.begin(), values.end());
  for (std::int64_t j = 0; j < size / 2; ++j)
    std::swap_ranges(a + j * size, a + (j + 1) * size, a + (size - 1 - j) * size);
  for (std::int64_t j = 0; j < size; ++j) {
    double* vector = a + j * size;
    const double* largest =
        std::max_element(vector, vector + size, [](double x, double y) { return std::abs(x) < std::abs(y); });
    if (*largest < 0) std::transform(vector, vector + size, vector, std::negate<>());
  }
  return values;
}

bool is_semidefinite(std::vector<double> a, std::int64_t size, const std::vector<double>& min_diagonal,
                     double error) {
  const auto n = static_cast<std::size_t>(size);
  std::vector<double> scale(n, 0.0);
  for (std::size_t i = 0; i < n; ++i)
    if (a[i * (n + 1)] > min_diagonal[i]) scale[i] = 1 / std::sqrt(a[i * (n + 1)]);
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = j + 1; i < n; ++i)
      a[i + j * n] = scale[i] > 0 && scale[j] > 0 ? a[i + j * n] * scale[i] * scale[j] : 0;
    a[j * (n + 1)] = 1 + error * static_cast<double>(size);
  }
  const int order = to_int(size);
  int info = 0;
  dpotrf_("L", &order, a.data(), &order, &info);
  return info == 0;
}

std::vector<double> singular_values(Matrix& a) {
  const auto desc = descriptor_of(a);
  std::vector<double> values(static_cast<std::size_t>(std::min(desc[2], desc[3]))), work(1);
  if (values.empty()) return values;
  int lwork = -1, info = 0;
  const auto call = [&] {
    pdgesvd_("N", "N", &desc[2], &desc[3], a.data(), &kFirst, &kFirst, desc.data(), values.data(), nullptr,
             &kFirst, &kFirst, desc.data(), nullptr, &kFirst, &kFirst, desc.data(), work.data(), &lwork,
             &info);
  };
  call();
  check_info("pdgesvd", info);
  lwork = workspace_size(work[0]);
  work.resize(static_cast<std::size_t>(lwork));
  call();
  check_converged("pdgesvd", info);
  a.grid().comm().broadcast(values.data(), static_cast<std::int64_t>(values.size()), 0);
  return values;
}

}  // namespace headspan
