// The overlap of a small random model: the same from one rank, from subgroups of ranks that share the layers,
// and from all ranks together on each projection. (Against numpy: test_study_reference.py.)
#include <gtest/gtest.h>

#include "app/sources/overlap.h"
#include "dist/matrix/linear_algebra.h"
#include "support/tables.h"

namespace headspan {
namespace {

constexpr std::int64_t kAlwaysLarge = 1;

ModelConfig small_model() {
  ModelConfig config;
  config.model_type = "qwen3";
  config.layers = 2;
  config.hidden_size = 24;
  config.mlp_size = config.vocab_size = 8;
  config.heads = 6;
  config.kv_heads = 2;
  config.head_size = 4;
  config.initializer_range = 0.02;
  config.qk_norm = QkNorm::per_head;
  return config;
}

void expect_same(const OverlapTable& table, const OverlapTable& expected, double tolerance) {
  expect_near(table.rank_sum, expected.rank_sum, 0, "rank_sum");
  expect_near(table.rank_joint, expected.rank_joint, 0, "rank_joint");
  expect_near(table.overlap_dimension, expected.overlap_dimension, 0, "overlap_dimension");
  expect_near(table.singular_values, expected.singular_values, tolerance, "singular_values");
  expect_near(table.alignment, expected.alignment, tolerance, "alignment");
}

TEST(Overlap, IsTheSameForSubgroupsAndForAllRanksTogether) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD), self = Comm::duplicate(MPI_COMM_SELF);
  const Projections projections(small_model(), 7, Dtype::float32);
  const Log silent(false);
  int calls = 0;
  const SymmetricEigenvalues on_host = [&](const double* a, std::int64_t n) {
    ++calls;
    std::vector<double> copy(a, a + n * n);
    return local_eigenvalues(copy.data(), n, n);
  };
  for (const Words& tolerances : {Words{"paper", "0.4"}, Words{"1e-9", "0.7"}}) {
    Job::Overlap request;
    request.tolerances = tolerances;
    calls = 0;
    const OverlapTable alone = compute_overlap(request, projections, self, silent, "");

    const OverlapTable subgroups = compute_overlap(request, projections, world, silent, "");
    const OverlapTable together = compute_overlap(request, projections, world, silent, "", {kAlwaysLarge});
    const OverlapTable by_rank = compute_overlap(request, projections, world, silent, "", {1, on_host});

    EXPECT_EQ(alone.from_gram, tolerances[0] == "paper");
    EXPECT_EQ(alone.heads, 6);
    EXPECT_EQ(alone.values, 24);
    EXPECT_GT(alone.singular_values[0], 0.05);
    expect_same(subgroups, alone, 1e-12);
    expect_same(together, alone, 1e-12);
    expect_same(by_rank, alone, 1e-12);
    EXPECT_EQ(calls > 0, alone.from_gram && world.rank() < 6);  // 6 projections of a layer each
  }
}

}  // namespace
}  // namespace headspan
