// The overlap of the heads of a model's projections, over all layers and from the weights alone: ranks of the
// heads and of the layer at each tolerance, singular values, and how far two heads of a layer span the same
// directions.
#pragma once

#include "app/job/job.h"
#include "app/plan/matrix_sizes.h"
#include "app/run/process_layout.h"
#include "base/log.h"
#include "model/weights/projections.h"
#include "stats/layers/overlap.h"

namespace headspan {

/// Row-major tables, the same on all ranks; NaN where a projection has fewer heads or singular values than
/// the largest.
struct OverlapTable {
  Words projections, effective, tolerances;  ///< the names along those axes
  std::int64_t layers = 0;
  std::int64_t heads = 0;     ///< of the projection with most
  std::int64_t values = 0;    ///< singular values of the projection with most
  double alignment_null = 0;  ///< d / m
  bool from_gram = true;      ///< singular values are square roots of the eigenvalues of W^T W

  std::vector<double> rank_sum;           ///< [projection, effective, tolerance, layer]
  std::vector<double> rank_joint;         ///< [projection, effective, tolerance, layer]
  std::vector<double> overlap_dimension;  ///< [projection, effective, tolerance, layer]
  std::vector<double> singular_values;    ///< [projection, effective, layer, value]
  std::vector<double> alignment;          ///< [projection, layer, head, other_head]
};

/// How the projections are divided among the ranks.
struct OverlapShares {
  std::int64_t large = kLargeProjection;  ///< elements of a projection that all ranks compute together
  SymmetricEigenvalues eigenvalues = {};  ///< given: each rank computes projections alone, with these
};

/// Computes the table for all layers. `unit` is for the log. Throws AgreedError. Collective over the group.
OverlapTable compute_overlap(const Job::Overlap& request, const Projections& projections, const Comm& group,
                             const Log& log, const std::string& unit, const OverlapShares& shares = {});

/// Returns the columns of the widest projection of the request.
std::int64_t most_columns(const Job::Overlap& request, const Projections& projections);

}  // namespace headspan
