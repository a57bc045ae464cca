// ScaLAPACK's routines on whole distributed matrices (dist/matrix/matrix.h), and on their trailing parts.
// Every function is collective over the grid of its matrices, which is one and the same, and throws Error on
// all ranks alike when ScaLAPACK refuses an argument or cannot count the elements of a rank.
#pragma once

#include <vector>

#include "dist/matrix/matrix.h"

namespace headspan {

/// Elements of a matrix on one rank up to which ScaLAPACK is used. What it (2.2.1) counts in 32 bits:
///   p?potrf, p?potri, p?gels, p?gesvd: places in a rank's array, so up to 2^31 - 1 elements;
///   p?syevd: besides, a workspace of twice as many and of some rows and columns, so nearly 2^30 elements;
///   p?gemm, p?tran, p?syrk: bytes of buffers of a block or 32 rows or columns, but places in 64 bits.
/// One bound for all, below that of p?syevd. Not one of `subtract_own_product`, which is p?syrk alone.
constexpr std::int64_t kMostLocalElements = 1'000'000'000;

/// Elements of a buffer that p?syrk may take where the inner dimension lies on one row or column of ranks: it
/// copies local rows or columns of the result times all of it then, and counts the bytes in 32 bits. More of
/// the inner dimension is multiplied in turns.
constexpr std::int64_t kMostBufferElements = std::int64_t{1} << 27;

/// Elements of a matrix that the fullest rank holds.
std::int64_t most_local_elements(const GridShape& grid, std::int64_t rows, std::int64_t columns,
                                 std::int64_t block);

/// A becomes D A D for D = diag(scale): [n]. Local.
void scale_both_sides(Matrix& a, const std::vector<double>& scale);

/// Copies the lower triangle onto the upper one (p?tran).
void mirror_lower(Matrix& a);

/// The lower triangle of A becomes L with L L^T = A (p?potrf). False when a pivot is not positive; A is lost
/// then.
bool factor_cholesky(Matrix& a);

/// The lower triangle, which holds L, becomes that of A^-1 (p?potri). False when L is singular.
bool invert_cholesky(Matrix& l);

/// C = A B (p?gemm).
void multiply(const Matrix& a, const Matrix& b, Matrix& c);

/// The lower triangle of C becomes that of A^T A: p?syrk; on a grid of one rank BLAS's dsyrk, which does not
/// cut the product into pieces and takes half the time.
void multiply_transposed(const Matrix& a, Matrix& c, std::int64_t most_buffered = kMostBufferElements);

/// Takes from the trailing lower triangle of A, from `first` to `last` in both directions, the product of its
/// columns first - k .. first with themselves: one step of a right-looking Cholesky (p?syrk).
void subtract_own_product(Matrix& a, std::int64_t k, std::int64_t first, std::int64_t last,
                          std::int64_t most_buffered = kMostBufferElements);

/// The first columns() rows of B become the C that minimises ||A C - B||_F, the sum of squares of the rows
/// below the minimum; A: [m, n] of full rank, m >= n, is lost (p?gels).
void solve_least_squares(Matrix& a, Matrix& b);

/// Eigenvalues of the symmetric A, descending, on every rank; A, of which the lower triangle is read, is
/// lost. p?syevd; on a grid of one rank LAPACK's dsyevd, which unlike it does not compute vectors too. Throws
/// Error when they do not converge.
std::vector<double> eigenvalues(Matrix& a);

/// The same of a symmetric [size, size] with leading dimension ld in one process (dsyevd). Local.
std::vector<double> local_eigenvalues(double* a, std::int64_t size, std::int64_t ld);

/// The size up to which `local_eigenvectors` can be used: dsyevd counts a workspace of 1 + 6 n + 2 n^2
/// numbers in 32 bits.
constexpr std::int64_t kMostEigenvectors = 32766;

/// The same of [size, size] without gaps; the columns of `a` become the orthonormal eigenvectors in that
/// order, each with its largest component positive (dsyevd). Local.
std::vector<double> local_eigenvectors(double* a, std::int64_t size);

/// Whether the symmetric [size, size], lower triangle valid, can be positive semidefinite when each of its
/// correlations, a_ij / sqrt(a_ii a_jj), is right to within `error`: this moves their eigenvalues by no more
/// than size * error, so that a Cholesky factor of them has to exist once that is added to the diagonal. Rows
/// whose diagonal is not above `least`: [size] are rounding alone and left out. Local.
bool is_semidefinite(std::vector<double> a, std::int64_t size, const std::vector<double>& least,
                     double error);

/// Singular values of A, descending, on every rank; A is lost. p?gesvd. Throws Error when they do not
/// converge.
std::vector<double> singular_values(Matrix& a);

}  // namespace headspan
