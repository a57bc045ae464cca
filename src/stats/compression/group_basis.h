// The basis of the heads of some layers in attention's metric, as a codec has it: with S the root of the
// metric, block-diagonal over heads, and U the eigenvectors of S C S, C the covariance of all columns,
// coefficients of a token are (x - mean) S U. U is rounded to 8 bits, because it is most of what a codec's
// maps take. Not how coefficients are coded (io/archive/level_coder.h). Local: one group on one rank.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

struct GroupBasis {
  std::vector<double> variances;              ///< [n] descending: of the coefficients
  std::vector<float> whitening, unwhitening;  ///< S and its inverse: [heads, d, d]
  std::vector<std::int8_t> directions;        ///< [n, D]: the first columns of U, each divided by its scale
  std::vector<float> scale;                   ///< [n]
};

/// Computes the first `count` directions from covariance: [D, D], lower triangle valid, and metric: [heads,
/// d, d] with D = heads d. 1 <= count <= D. Local.
GroupBasis make_group_basis(std::vector<double> covariance, const std::vector<double>& metric,
                            std::int64_t heads, std::int64_t d, std::int64_t count);

}  // namespace headspan
