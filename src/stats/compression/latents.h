// Latents of one layer and stream: the coordinates in which attention's metric
// (stats/compression/attention_metric.h) sees uncorrelated columns, most costly first. With C the covariance
// of the layer's columns and S the blockdiagonal symmetric root of the metric, S C S = U diag(lambda) U^T;
// latent i is z_i = (x - mean) S u_i, and x = mean + sum_i z_i u_i^T S^-1. Dropping latent i costs lambda_i.
// Where the metrics of all heads are 0 nothing costs: S is the identity then, and z_i has a variance for all
// that.
// Local: one layer on one rank.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

/// D columns of a layer; matrices are column-major.
struct Latents {
  std::vector<double> eigenvalues;  ///< [D] descending, not negative: what dropping each latent costs
  std::vector<double> variances;    ///< [D] descending: of each latent
  std::vector<double> projection;   ///< S U: [D, D]
  std::vector<double> lift;         ///< S^-1 U: [D, D], of which the transpose lifts
};

/// covariance: [D, D], lower triangle valid; metric: [heads, d, d] with D = heads d. Directions that the
/// metric does not see are given 1e-9 of its largest eigenvalue, so that S has an inverse.
Latents make_latents(std::vector<double> covariance, const std::vector<double>& metric, std::int64_t heads,
                     std::int64_t d);

}  // namespace headspan
