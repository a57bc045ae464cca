// Result tables, which are dealt out over the ranks by target, whole on every rank; and their comparison.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "stats/regression/pairwise.h"
#include "stats/regression/selection.h"
#include "support/synthetic.h"

namespace headspan {

/// The same table with the rows of all targets. Collective.
inline PairTable gather(const Comm& comm, const PairTable& part) {
  PairTable all = part;
  all.targets = {0, static_cast<std::int64_t>(part.rank.size())};
  all.r2 = gather_slabs(comm, part.r2);
  all.r2_weighted = gather_slabs(comm, part.r2_weighted);
  all.r2_heldout = gather_slabs(comm, part.r2_heldout);
  all.status = gather_slabs(comm, part.status);
  return all;
}

/// Likewise.
inline SelectionTable gather(const Comm& comm, const SelectionTable& part) {
  SelectionTable all;
  all.references = part.references;
  all.sources = gather_slabs(comm, part.sources);
  all.r2 = gather_slabs(comm, part.r2);
  all.r2_heldout = gather_slabs(comm, part.r2_heldout);
  all.status = gather_slabs(comm, part.status);
  all.rank = gather_slabs(comm, part.rank);
  all.pivot = gather_slabs(comm, part.pivot);
  all.targets = {0, static_cast<std::int64_t>(all.r2.size()) / part.references};
  return all;
}

/// Expects as many values, NaN in the same places, and all others within `tolerance`.
inline void expect_near(const std::vector<double>& values, const std::vector<double>& expected,
                        double tolerance, const char* what) {
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::isnan(values[i]), std::isnan(expected[i])) << what << " " << i;
    if (std::isnan(values[i])) continue;
    ASSERT_NEAR(values[i], expected[i], tolerance) << what << " " << i;
  }
}

}  // namespace headspan
