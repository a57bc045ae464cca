// Operations on small dense matrices of one rank, column-major, by BLAS and LAPACK, for the regressions of
// heads. Distributed matrices are in dist/matrix/linear_algebra.h. Local.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

/// Returns op(A) op(B): [m, n] without gaps, summed over k (dgemm). `transa` and `transb`: "N" or "T".
std::vector<double> gemm(const char* transa, const char* transb, std::int64_t m, std::int64_t n,
                         std::int64_t k, const double* a, std::int64_t lda, const double* b,
                         std::int64_t ldb);

/// Copies the lower triangle of a: [n, n] with leading dimension lda onto the upper one.
void mirror_lower(double* a, std::int64_t n, std::int64_t lda);

/// Replaces a: [n, n] without gaps, symmetric with a valid lower triangle, by its inverse, both triangles
/// (dpotrf, dpotri). Returns false if it is not positive definite; it is lost then.
bool invert_positive_definite(double* a, std::int64_t n);

/// Returns the sum of the singular values of a: [m, n] with leading dimension lda (dgesvd); NaN if they
/// do not converge.
double sum_of_singular_values(std::int64_t m, std::int64_t n, const double* a, std::int64_t lda);

}  // namespace headspan
