// The overlap dimension of one projection W = [W_1 .. W_H]: [m, H d], from its weights alone:
//
//   sum_i rank(W_i) - rank(W),   rank = the number of singular values above a tolerance,
//
// and the singular values. Not which heads share directions: that is stats/layers/head_angles.h, on the same
// Gram W^T W.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "dist/matrix/matrix.h"

namespace headspan {

/// Singular values, descending.
struct ProjectionSpectrum {
  std::vector<double> joint;               ///< of W: [min(m, H d)]
  std::vector<std::vector<double>> heads;  ///< of each W_i: [min(m, d)]
};

/// Divides W by a power of two 2^e if W^T W would overflow or underflow otherwise. Returns e, or 0 if W is
/// left as it is. Collective over the grid.
int bring_into_range(Matrix& w);

/// Returns the eigenvalues of a: [n, n], column-major, lower triangle valid, descending. Local.
using SymmetricEigenvalues = std::function<std::vector<double>(const double* a, std::int64_t n)>;

/// Computes the spectrum from the eigenvalues of W^T W: p?syevd or, if it is given and the grid is one
/// rank's, `elsewhere` for W, LAPACK's for the heads. Resolves singular values down to about 1e-7 of the
/// largest, at a fifth of the cost of spectrum_of_weights. gram: lower triangle with full diagonal tiles of d
/// columns; gain: [H d], of any magnitude, multiplies the columns of W; rows: m. Collective over the grid.
ProjectionSpectrum spectrum_of_gram(const Matrix& gram, const std::vector<double>& gain, std::int64_t rows,
                                    std::int64_t d, const SymmetricEigenvalues& elsewhere = {});

/// Computes the spectrum from W itself by p?gesvd, which resolves singular values down to rounding. w: [m, H
/// d]. Collective over the grid.
ProjectionSpectrum spectrum_of_weights(const Matrix& w, const std::vector<double>& gain, std::int64_t d);

struct OverlapRanks {
  std::int64_t sum = 0;    ///< sum of the ranks of the heads
  std::int64_t joint = 0;  ///< rank of W

  std::int64_t overlap_dimension() const { return sum - joint; }
};

/// Counts the singular values above `relative_tolerance` times the largest of W, or, without it, above the
/// paper's tolerance, which is max(shape) eps32 sigma_max of each matrix itself. rows: m. Local.
OverlapRanks overlap_ranks(const ProjectionSpectrum& spectrum, std::int64_t rows, std::int64_t d,
                           std::optional<double> relative_tolerance);

}  // namespace headspan
