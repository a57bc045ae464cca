// The basis of a group against its defining equations, up to the rounding of its directions.
#include <cmath>

#include <gtest/gtest.h>

#include "stats/compression/group_basis.h"
#include "support/dense.h"

namespace headspan {
namespace {

constexpr std::int64_t kHeads = 6, kHeadSize = 4, kColumns = kHeads * kHeadSize;

/// Blocks [heads, d, d] on the diagonal.
Dense block_diagonal(const std::vector<float>& blocks) {
  Dense result(kColumns, kColumns);
  for (std::int64_t j = 0; j < kColumns; ++j)
    for (std::int64_t i = 0; i < kColumns; ++i)
      if (i / kHeadSize == j / kHeadSize)
        result(i, j) = blocks[static_cast<std::size_t>((j * kHeadSize) + i % kHeadSize)];
  return result;
}

/// The directions as columns: [D, n].
Dense directions_of(const GroupBasis& basis) {
  const auto count = static_cast<std::int64_t>(basis.scale.size());
  Dense result(kColumns, count);
  for (std::int64_t j = 0; j < count; ++j)
    for (std::int64_t c = 0; c < kColumns; ++c)
      result(c, j) = double{basis.scale[static_cast<std::size_t>(j)]} *
                     basis.directions[static_cast<std::size_t>(j * kColumns + c)];
  return result;
}

TEST(GroupBasis, has_uncorrelated_coefficients_in_the_metric) {
  const Dense covariance = random_covariance(kColumns, 1);
  const auto metrics = random_metrics(kHeads, kHeadSize, 10);

  const GroupBasis basis =
      make_group_basis(covariance.values(), joined(metrics), kHeads, kHeadSize, kColumns);

  const Dense s = block_diagonal(basis.whitening), u = directions_of(basis);
  const Dense found = u.transposed() * s * covariance * s * u;
  for (std::int64_t j = 0; j < kColumns; ++j)
    for (std::int64_t i = 0; i < kColumns; ++i)
      EXPECT_NEAR(found(i, j), i == j ? basis.variances[static_cast<std::size_t>(i)] : 0,
                  0.02 * basis.variances[0]);
  const Dense identity = u.transposed() * u;
  for (std::int64_t j = 0; j < kColumns; ++j)
    for (std::int64_t i = 0; i < kColumns; ++i) EXPECT_NEAR(identity(i, j), i == j ? 1 : 0, 0.02);
}

TEST(GroupBasis, whitens_with_the_root_of_the_metric) {
  const auto metrics = random_metrics(kHeads, kHeadSize, 20);

  const GroupBasis basis =
      make_group_basis(random_covariance(kColumns, 2).values(), joined(metrics), kHeads, kHeadSize, 7);

  const Dense s = block_diagonal(basis.whitening), inverse = block_diagonal(basis.unwhitening);
  const Dense squared = s * s, identity = s * inverse;
  for (std::int64_t j = 0; j < kColumns; ++j)
    for (std::int64_t i = 0; i < kColumns; ++i) {
      const bool same_head = i / kHeadSize == j / kHeadSize;
      const double metric =
          same_head ? metrics[static_cast<std::size_t>(i / kHeadSize)](i % kHeadSize, j % kHeadSize) : 0;
      EXPECT_NEAR(squared(i, j), metric, 1e-5);
      EXPECT_NEAR(identity(i, j), i == j ? 1 : 0, 1e-4);
    }
  EXPECT_EQ(basis.variances.size(), 7U);
  EXPECT_EQ(basis.scale.size(), 7U);
  EXPECT_EQ(basis.directions.size(), static_cast<std::size_t>(7 * kColumns));
}

TEST(GroupBasis, uses_all_of_eight_bits) {
  const GroupBasis basis =
      make_group_basis(random_covariance(kColumns, 3).values(), joined(random_metrics(kHeads, kHeadSize, 30)),
                       kHeads, kHeadSize, 5);
  for (std::size_t j = 0; j < 5; ++j) {
    int largest = 0;
    for (std::int64_t c = 0; c < kColumns; ++c)
      largest =
          std::max(largest, std::abs(int{basis.directions[j * kColumns + static_cast<std::size_t>(c)]}));
    EXPECT_EQ(largest, 127);
  }
}

}  // namespace
}  // namespace headspan
