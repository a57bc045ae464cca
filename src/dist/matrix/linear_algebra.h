// ScaLAPACK's routines on distributed matrices (dist/matrix/matrix.h) and their trailing submatrices. Unless
// its comment says "Local", a function is collective over the grid that its matrices share, and throws Error
// on all ranks if ScaLAPACK refuses an argument or cannot count the elements on a rank.
#pragma once

#include <vector>

#include "dist/matrix/matrix.h"

namespace headspan {

/// The largest number of elements on one rank for which ScaLAPACK is used. ScaLAPACK 2.2.1 counts in 32 bits:
///   p?potrf, p?potri, p?gels, p?gesvd: indices into the local array, so up to 2^31 - 1 elements;
///   p?syevd: a workspace of twice as many elements and some rows and columns too, so nearly 2^30 elements;
///   p?gemm, p?tran, p?syrk: bytes of buffers of a block or of 32 rows or columns, but indices in 64 bits.
/// One bound for all, below that of p?syevd. It does not apply to `update_trailing_matrix`, which calls
/// p?syrk only.
constexpr std::int64_t kMaxLocalElements = 1'000'000'000;

/// The largest buffer of p?syrk, in elements. If the inner dimension k is on one row or column of ranks,
/// p?syrk copies k times the local rows or columns of the result, and counts the bytes in 32 bits. A larger k
/// is divided into several calls.
constexpr std::int64_t kMaxBufferElements = std::int64_t{1} << 27;

/// Returns the number of elements on the rank that holds the most elements of a matrix. Local.
std::int64_t max_local_elements(const GridShape& grid, std::int64_t rows, std::int64_t columns,
                                std::int64_t block);

/// Replaces A by D A D, D = diag(scale), scale: [n]. Local.
void scale_both_sides(Matrix& a, const std::vector<double>& scale);

/// Copies the lower triangle onto the upper one (p?tran).
void mirror_lower(Matrix& a);

/// Replaces the lower triangle of A by its Cholesky factor L, L L^T = A (p?potrf). Returns false if a pivot
/// is not positive; A is lost then.
bool factor_cholesky(Matrix& a);

/// Replaces L, in the lower triangle, by the lower triangle of A^-1 = (L L^T)^-1 (p?potri). Returns false if
/// L is singular.
bool invert_cholesky(Matrix& l);

/// Computes C = A B (p?gemm).
void multiply(const Matrix& a, const Matrix& b, Matrix& c);

/// Computes the lower triangle of C = A^T A with p?syrk; on a grid of one rank with BLAS's dsyrk, which does
/// not divide the product into blocks and takes half the time.
void multiply_transposed(const Matrix& a, Matrix& c, std::int64_t max_buffered = kMaxBufferElements);

/// Subtracts A[first:last, first-k:first] A[first:last, first-k:first]^T from the lower triangle of
/// A[first:last, first:last]: the trailing update of a right-looking Cholesky factorisation (p?syrk).
void update_trailing_matrix(Matrix& a, std::int64_t k, std::int64_t first, std::int64_t last,
                            std::int64_t max_buffered = kMaxBufferElements);

/// Solves min ||A C - B||_F for A: [m, n] of full rank, m >= n, which is lost (p?gels). The first n rows of B
/// become C; the sum of squares of the other rows is the minimum.
void solve_least_squares(Matrix& a, Matrix& b);

/// Returns the eigenvalues of the symmetric A, descending, on every rank. Reads the lower triangle; A is
/// lost. Calls p?syevd, on a grid of one rank LAPACK's dsyevd, which need not compute eigenvectors. Throws
/// Error if they do not converge.
std::vector<double> eigenvalues(Matrix& a);

/// Returns the eigenvalues, descending, of a symmetric a: [size, size] with leading dimension ld, of which
/// the lower triangle is read; `a` is lost (dsyevd). Throws Error. Local.
std::vector<double> local_eigenvalues(double* a, std::int64_t size, std::int64_t ld);

/// The largest size for `local_eigenvectors`: dsyevd counts a workspace of 1 + 6 n + 2 n^2 numbers in 32
/// bits.
constexpr std::int64_t kMaxEigenvectors = 32766;

/// Returns the eigenvalues of a symmetric a: [size, size] without gaps, descending, and replaces the columns
/// of `a` by the orthonormal eigenvectors in the same order, each with a positive largest component (dsyevd).
/// Throws Error. Local.
std::vector<double> local_eigenvectors(double* a, std::int64_t size);

/// Returns whether the symmetric a: [size, size], lower triangle valid, can be positive semidefinite if each
/// of its correlations a_ij / sqrt(a_ii a_jj) is exact to within `error`. Such errors move the eigenvalues of
/// the correlation matrix by at most size * error, so it must have a Cholesky factor once that is added to
/// its diagonal. Rows whose diagonal is not above min_diagonal: [size] are rounding errors only, and are left
/// out. Local.
bool is_semidefinite(std::vector<double> a, std::int64_t size, const std::vector<double>& min_diagonal,
                     double error);

/// Returns the singular values of A, descending, on every rank; A is lost (p?gesvd). Throws Error if they do
/// not converge.
std::vector<double> singular_values(Matrix& a);

}  // namespace headspan
