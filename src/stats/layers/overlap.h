// The overlap dimension of one projection W = [W_1 .. W_H]: [m, H d], from its weights alone:
//
//   sum_i rank(W_i) - rank(W),   rank = how many singular values exceed a tolerance,
//
// and the singular values behind it. Not which heads share directions: that is stats/layers/head_angles.h, on
// the same Gram W^T W.
#pragma once

#include <string>
#include <vector>

#include "dist/matrix/matrix.h"

namespace headspan {

/// Singular values, descending.
struct ProjectionSpectrum {
  std::vector<double> joint;               ///< of W: [min(m, H d)]
  std::vector<std::vector<double>> heads;  ///< of each W_i: [min(m, d)]
};

/// Multiplies W by a power of two where its largest magnitude is so far from 1 that W^T W would overflow or
/// vanish; leaves any other as it is. Returns e: W was 2^e times what it is now. Collective over the grid.
int bring_into_range(Matrix& w);

/// From the eigenvalues of W^T W: p?syevd for W, LAPACK's for the heads. Resolves singular values down to
/// about 1e-7 of the largest, at a fifth of the cost of the other. gram: lower triangle with whole diagonal
/// tiles of d columns; gain: [H d], of any magnitude, multiplies the columns of W; rows: m. Collective over
/// the grid.
ProjectionSpectrum spectrum_of_gram(const Matrix& gram, const std::vector<double>& gain, std::int64_t rows,
                                    std::int64_t d);

/// From W itself by p?gesvd: resolves singular values down to rounding. w: [m, H d]. Collective over the
/// grid.
ProjectionSpectrum spectrum_of_weights(const Matrix& w, const std::vector<double>& gain, std::int64_t d);

/// `tolerance` is "paper", max(shape) eps32 sigma_max of each matrix itself, or a number, relative to the
/// largest singular value of W for all terms.
bool is_paper_tolerance(const std::string& tolerance);

struct OverlapRanks {
  std::int64_t sum = 0;    ///< of the ranks of the heads
  std::int64_t joint = 0;  ///< rank of W

  std::int64_t overlap_dimension() const { return sum - joint; }
};

OverlapRanks overlap_ranks(const ProjectionSpectrum& spectrum, std::int64_t rows, std::int64_t d,
                           const std::string& tolerance);

}  // namespace headspan
