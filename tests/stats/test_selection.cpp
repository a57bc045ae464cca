// Selections against brute force with least squares on the raw activations, on every grid.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "stats/regression/selection.h"
#include "support/grids.h"
#include "support/reference_ols.h"
#include "support/tables.h"

namespace headspan {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// All rows on every rank.
SelectionTable selection_of(const RegressionData& data, SelectionRule rule, std::int64_t references,
                            std::int64_t pool) {
  return gather(data.comm(), select(data, all_pairs(data), rule, references, pool));
}

/// What a selection should be: sources and scores of every target.
struct Expected {
  std::vector<int> sources;
  std::vector<double> r2, r2_heldout;
};

/// The causal sources of `target`, best pairwise R² first.
std::vector<std::int64_t> rank_by_brute_force(const HeadLayout& layout, const Activations& fit,
                                              std::int64_t target) {
  std::vector<std::pair<double, std::int64_t>> ranking;
  for (std::int64_t s = 0; s < layout.heads(); ++s)
    if (s != target && layout.layer[to_size(s)] <= layout.layer[to_size(target)])
      ranking.emplace_back(-reference_ols(fit, nullptr, layout.head_size, {s}, target).r2, s);
  std::sort(ranking.begin(), ranking.end());
  std::vector<std::int64_t> sources;
  for (const auto& entry : ranking) sources.push_back(entry.second);
  return sources;
}

/// Adds `count` times the head of `pool` that raises the joint R² most.
std::vector<std::int64_t> forward_by_brute_force(const Activations& fit, std::int64_t d, std::int64_t target,
                                                 std::vector<std::int64_t> pool, std::int64_t count) {
  std::vector<std::int64_t> chosen;
  while (static_cast<std::int64_t>(chosen.size()) < count && !pool.empty()) {
    const auto joint_r2 = [&](std::int64_t candidate) {
      std::vector<std::int64_t> heads = chosen;
      heads.push_back(candidate);
      return reference_ols(fit, nullptr, d, heads, target).r2;
    };
    const auto best = std::max_element(pool.begin(), pool.end(), [&](std::int64_t a, std::int64_t b) {
      return joint_r2(a) < joint_r2(b);  // the first of equals
    });
    chosen.push_back(*best);
    pool.erase(best);
  }
  return chosen;
}

Expected select_by_brute_force(const HeadLayout& layout, const Activations& fit, const Activations& heldout,
                               SelectionRule rule, std::int64_t references, std::int64_t pool) {
  Expected expected;
  const std::int64_t d = layout.head_size;
  for (std::int64_t target = 0; target < layout.heads(); ++target) {
    std::vector<std::int64_t> sources = rank_by_brute_force(layout, fit, target);
    sources.resize(std::min(sources.size(), to_size(rule == SelectionRule::forward ? pool : references)));
    if (rule == SelectionRule::forward) sources = forward_by_brute_force(fit, d, target, sources, references);
    for (std::int64_t n = 1; n <= references; ++n) {
      const bool exists = n <= static_cast<std::int64_t>(sources.size());
      OlsScore score{kNaN, kNaN, kNaN};
      if (exists) score = reference_ols(fit, &heldout, d, {sources.begin(), sources.begin() + n}, target);
      expected.sources.push_back(exists ? static_cast<int>(sources[to_size(n - 1)]) : -1);
      expected.r2.push_back(score.r2);
      expected.r2_heldout.push_back(score.r2_heldout);
    }
  }
  return expected;
}

TEST(Selection, AgreesWithBruteForceOverTheActivations) {
  constexpr std::int64_t kReferences = 4, kPool = 5;
  for (const HeadLayout& layout : {make_layout(3, 3, 2), make_layout(1, 7, 1), make_layout(2, 2, 8)}) {
    const Activations fit = correlated(120, layout.columns(), layout.columns() / 2 + 1, 0.4, 1, 2);
    const Activations heldout = correlated(60, layout.columns(), layout.columns() / 2 + 1, 0.4, 1, 3);
    for (const SelectionRule rule : {SelectionRule::pairwise, SelectionRule::forward}) {
      const Expected expected = select_by_brute_force(layout, fit, heldout, rule, kReferences, kPool);

      on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
        const RegressionData data = make_data(grid, layout, fit, &heldout, {block});
        const SelectionTable table = selection_of(data, rule, kReferences, kPool);

        EXPECT_EQ(table.sources, expected.sources);
        expect_near(table.r2, expected.r2, 1e-9, "r2");
        expect_near(table.r2_heldout, expected.r2_heldout, 1e-9, "r2_heldout");
        for (std::size_t i = 0; i < table.status.size(); ++i) {
          const bool exists = expected.sources[i] >= 0;
          EXPECT_EQ(table.status[i], exists ? 0 : kNotComputed);
          const auto count = static_cast<std::int64_t>(i) % kReferences + 1;
          EXPECT_EQ(table.rank[i], exists ? count * layout.head_size : 0);
          EXPECT_EQ(std::isnan(table.pivot[i]), !exists);
        }
      });
    }
  }
}

TEST(Selection, IsTheSameOnEveryGrid) {
  const HeadLayout layout = make_layout(2, 6, 3);
  const Activations fit = correlated(300, layout.columns(), 8, 0.2, 4, 5);
  const Grid alone(Comm::duplicate(MPI_COMM_SELF), 1, 1);
  const RegressionData serial = make_data(alone, layout, fit, &fit, {layout.head_size});
  for (const SelectionRule rule : {SelectionRule::pairwise, SelectionRule::forward}) {
    const SelectionTable expected = selection_of(serial, rule, 5, 8);
    on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
      const SelectionTable table = selection_of(make_data(grid, layout, fit, &fit, {block}), rule, 5, 8);

      EXPECT_EQ(table.sources, expected.sources);
      EXPECT_EQ(table.status, expected.status);
      EXPECT_EQ(table.rank, expected.rank);
      expect_near(table.r2, expected.r2, 1e-10, "r2");
      expect_near(table.r2_heldout, expected.r2_heldout, 1e-10, "r2_heldout");
      expect_near(table.pivot, expected.pivot, 1e-10, "pivot");
    });
  }
}

TEST(Selection, ForwardStartsWithTheBestPairAndNeverFalls) {
  const HeadLayout layout = make_layout(1, 9, 2);
  const Activations fit = correlated(150, layout.columns(), 6, 0.3, 6, 7);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, fit, nullptr, {block});
    const SelectionTable pairwise = selection_of(data, SelectionRule::pairwise, 3, 0);
    const SelectionTable forward = selection_of(data, SelectionRule::forward, 3, 8);
    const PairTable pairs = gather(grid.comm(), all_pairs(data));

    for (std::size_t i = 0; i < forward.r2.size(); ++i) {
      EXPECT_TRUE(std::isnan(forward.r2_heldout[i]));
      if (i % 3 > 0) {
        EXPECT_GT(forward.r2[i], forward.r2[i - 1]);
        continue;
      }
      EXPECT_EQ(forward.sources[i], pairwise.sources[i]);
      EXPECT_EQ(forward.r2[i], pairwise.r2[i]);
      EXPECT_NEAR(forward.r2[i], pairs.r2[i / 3 * 9 + to_size(forward.sources[i])], 1e-13);
      EXPECT_GE(forward.r2[i + 1], pairwise.r2[i + 1]);  // the best pairwise source with its best partner
    }
  });
}

/// Small integers in pairs z, -z: every sum is exact, so that equal heads are equal to the last bit.
Activations exact_integers(std::int64_t tokens, std::int64_t columns, std::uint64_t seed) {
  Activations z = gaussian(tokens, columns, seed);
  for (double& value : z.values) value = std::round(3 * value);
  for (std::int64_t t = 1; t < tokens; t += 2)
    for (std::int64_t j = 0; j < columns; ++j) z.at(t, j) = -z.at(t - 1, j);
  return z;
}

// Heads 1, 2 and 4 are equal, and head 5 is near to them.
TEST(Selection, BreaksTiesByTheLowerHead) {
  const HeadLayout layout = make_layout(1, 6, 2);
  Activations z = exact_integers(60, layout.columns(), 8);
  for (std::int64_t t = 0; t < z.tokens; ++t)
    for (std::int64_t i = 0; i < 2; ++i) z.at(t, 2 + i) = 3 * z.at(t, 10 + i) + z.at(t, i);
  copy_head(z, 2, 1, 2);
  copy_head(z, 2, 1, 4);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, z, nullptr, {block, Precision::float64, z.tokens});
    const SelectionTable pairwise = selection_of(data, SelectionRule::pairwise, 5, 0);
    const SelectionTable forward = selection_of(data, SelectionRule::forward, 5, 5);

    const auto row = [](const std::vector<int>& sources, int target) {
      return std::vector<int>(sources.begin() + 5 * target, sources.begin() + 5 * target + 5);
    };
    const std::vector<int> equal = row(pairwise.sources, 5);
    EXPECT_EQ(std::vector<int>(equal.begin(), equal.begin() + 3), (std::vector<int>{1, 2, 4}));
    // Forward selects the first of equals; the others then add nothing and come last, in order.
    const std::vector<int> chosen = row(forward.sources, 5);
    EXPECT_EQ(chosen.front(), 1);
    EXPECT_EQ(std::vector<int>(chosen.begin() + 3, chosen.end()), (std::vector<int>{2, 4}));
    EXPECT_EQ(row(forward.sources, 4).front(), 1);
    for (std::size_t n = 0; n < 5; ++n) {
      EXPECT_EQ(forward.status[5 * 5 + n], n < 3 ? 0 : kDeficient);
      EXPECT_EQ(forward.rank[5 * 5 + n], n < 3 ? 2 * static_cast<int>(n + 1) : 6);
      EXPECT_EQ(pairwise.status[5 * 5 + n], n < 1 ? 0 : kDeficient);
    }
  });
}

TEST(Selection, AnswersDeficientJointFitsFromWhatIsKept) {
  const HeadLayout layout = make_layout(1, 5, 2);
  Activations fit = correlated(80, layout.columns(), 4, 0.3, 9, 10);
  Activations heldout = correlated(40, layout.columns(), 4, 0.3, 9, 11);
  copy_head(fit, 2, 0, 3);
  copy_head(heldout, 2, 0, 3);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, fit, &heldout, {block});
    const SelectionTable table = selection_of(data, SelectionRule::pairwise, 4, 0);

    const OlsScore expected = reference_ols(fit, &heldout, 2, {0, 2, 4}, 1);
    const std::size_t at = 4 * 1 + 3;  // target 1 from all other heads
    EXPECT_EQ(table.status[at], kDeficient);
    EXPECT_EQ(table.rank[at], 6);
    EXPECT_NEAR(table.r2[at], expected.r2, 1e-9);
    EXPECT_NEAR(table.r2_heldout[at], expected.r2_heldout, 1e-9);
  });
}

TEST(Selection, StopsWhereTokensRunOut) {
  const HeadLayout layout = make_layout(1, 4, 2);
  const Activations z = gaussian(6, layout.columns(), 12);  // 2 heads: p = 4 < n - 1 = 5
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, z, &z, {block});
    for (const SelectionRule rule : {SelectionRule::pairwise, SelectionRule::forward}) {
      const SelectionTable table = selection_of(data, rule, 4, 3);

      for (std::size_t i = 0; i < table.r2.size(); ++i) {
        const std::size_t count = i % 4 + 1;
        EXPECT_EQ(table.status[i], count <= 2 ? 0 : count == 3 ? kTooFewTokens : kNotComputed);
        EXPECT_EQ(std::isnan(table.r2[i]), count > 2);
        EXPECT_EQ(std::isnan(table.r2_heldout[i]), count > 2);
        const bool listed =
            count <= 2 || (rule == SelectionRule::pairwise && count == 3);  // ranked, not fitted
        EXPECT_EQ(table.sources[i] >= 0, listed);
      }
    }
  });
}

TEST(Selection, OfTooFewTokensOrOneHeadIsEmpty) {
  const HeadLayout four = make_layout(1, 4, 2), one = make_layout(1, 1, 2);
  const Activations short_run = gaussian(3, four.columns(), 13), single = gaussian(50, one.columns(), 14);
  on_every_grid(four, [&](const Grid& grid, std::int64_t block) {
    for (const SelectionRule rule : {SelectionRule::pairwise, SelectionRule::forward}) {
      const SelectionTable few = selection_of(make_data(grid, four, short_run, nullptr, {block}), rule, 2, 3);
      const SelectionTable none = selection_of(make_data(grid, one, single, nullptr, {2}), rule, 2, 3);

      EXPECT_EQ(few.sources, std::vector<int>(8, -1));
      EXPECT_EQ(few.status, std::vector<std::uint8_t>(8, kTooFewTokens));
      EXPECT_EQ(none.sources, std::vector<int>(2, -1));
      EXPECT_EQ(none.status, std::vector<std::uint8_t>(2, kNotComputed));
    }
  });
}

// Every head of a layer of N + 1 has just the N others: no choice that would lift R². Its mean over draws is
// N d / m with the variance of Beta(N d / 2, (m - N d) / 2); (N + 1) d coordinates, about half of them
// independent.
TEST(Selection, OfRandomProjectionsIsTheGeometricNull) {
  constexpr double kHidden = 64, kHeadSize = 4, kCount = 5;
  const HeadLayout layout = make_layout(1, 6, 4);
  const Activations z = product(cosines(200, 64), gaussian(64, layout.columns(), 15));
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const SelectionTable table =
        selection_of(make_data(grid, layout, z, nullptr, {block}), SelectionRule::pairwise, 5, 0);

    double mean = 0;
    for (std::size_t t = 0; t < 6; ++t) mean += table.r2[5 * t + 4] / 6;
    const double p = kCount * kHeadSize;
    const double variance = 2 * p * (kHidden - p) / (kHidden * kHidden * (kHidden + 2));
    EXPECT_NEAR(mean, p / kHidden, 4 * std::sqrt(variance / 12));
  });
}

TEST(RankedSources, AreCausalFallingAndWithoutGaps) {
  HeadLayout layout;
  layout.head_size = 1;
  layout.layer = {0, 0, 1, 1, 2};
  layout.head = {0, 1, 0, 1, 0};
  PairTable pairs;
  pairs.targets = {2, 2};  // heads 2 and 3, both of layer 1
  pairs.r2 = {0.5, 0.7, kNaN, 0.7, 0.9, /* target 3 */ kNaN, 0.1, 0.2, kNaN, 1.0};

  EXPECT_EQ(ranked_sources(layout, pairs, 2, 9), (std::vector<std::int64_t>{1, 3, 0}));
  EXPECT_EQ(ranked_sources(layout, pairs, 2, 2), (std::vector<std::int64_t>{1, 3}));
  EXPECT_EQ(ranked_sources(layout, pairs, 3, 9), (std::vector<std::int64_t>{2, 1}));
}

}  // namespace
}  // namespace headspan
