// Latents of one layer and stream: uncorrelated coordinates in attention's metric
// (stats/compression/attention_metric.h), most costly first. With C the covariance of the layer's columns and
// S the block-diagonal symmetric root of the metric, S C S = U diag(lambda) U^T; latent i is z_i = (x - mean)
// S u_i, and x = mean + sum_i z_i u_i^T S^-1. Dropping latent i costs lambda_i. If the metrics of all heads
// are 0, S is the identity: dropping a latent costs nothing, whatever its variance. Not how latents are
// quantised (stats/compression/bit_allocation.h). Local: one layer on one rank.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

/// S and its inverse for each head: [heads, d, d], symmetric.
struct MetricRoots {
  std::vector<double> roots, inverses;
};

/// Returns the roots of metric: [heads, d, d], with the eigenvalues that make_latents raises raised. Local.
MetricRoots metric_roots(const std::vector<double>& metric, std::int64_t heads, std::int64_t d);

/// The latents of a layer of D columns. Matrices are column-major.
struct Latents {
  std::vector<double> eigenvalues;     ///< [D] descending, not negative: what dropping each latent costs
  std::vector<double> variances;       ///< [D] descending: of each latent
  std::vector<double> projection;      ///< S U: [D, D]
  std::vector<double> reconstruction;  ///< S^-1 U: [D, D], whose transpose maps latents back to columns
};

/// Computes the latents from covariance: [D, D], lower triangle valid, and metric: [heads, d, d] with D =
/// heads d. Raises the metric's eigenvalues to at least 1e-9 of the largest, so that S has an inverse.
Latents make_latents(std::vector<double> covariance, const std::vector<double>& metric, std::int64_t heads,
                     std::int64_t d);

}  // namespace headspan
