// All pairs against least squares on the raw activations and against closed forms, on every grid.
#include <cmath>
#include <limits>
#include <string>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "dist/comm/agreement.h"
#include "stats/regression/pairwise.h"
#include "support/grids.h"
#include "support/reference_ols.h"
#include "support/tables.h"

namespace headspan {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// All rows on every rank.
PairTable pairs_of(const Grid& grid, const HeadLayout& layout, const Activations& fit,
                   const Activations* heldout, const GramPlan& plan) {
  return gather(grid.comm(), all_pairs(make_data(grid, layout, fit, heldout, plan)));
}

/// On one rank alone.
PairTable serial_pairs(const HeadLayout& layout, const Activations& fit, const Activations* heldout) {
  const Grid alone(Comm::duplicate(MPI_COMM_SELF), 1, 1);
  return pairs_of(alone, layout, fit, heldout, {layout.head_size});
}

TEST(Pairwise, OfTwoStreamsAgreesWithLeastSquares) {
  const HeadLayout layout = cross_layout(make_layout(2, 3, 2), make_layout(3, 1, 2), 1);
  const Activations fit = correlated(60, layout.columns(), 7, 0.3, 1, 4);
  const Activations heldout = correlated(25, layout.columns(), 7, 0.3, 1, 5);
  std::vector<double> r2, r2_heldout;
  for (std::int64_t t = 6; t < 9; ++t)
    for (std::int64_t s = 0; s < 9; ++s) {
      const OlsScore score = reference_ols(fit, &heldout, 2, {s < 6 ? s : 0}, t);
      r2.push_back(s < 6 ? score.r2 : kNaN);
      r2_heldout.push_back(s < 6 ? score.r2_heldout : kNaN);
    }

  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const PairTable table = pairs_of(grid, layout, fit, &heldout, {block});

    expect_near(table.r2, r2, 1e-9, "r2");
    expect_near(table.r2_heldout, r2_heldout, 1e-9, "r2_heldout");
    for (std::size_t i = 0; i < r2.size(); ++i)
      EXPECT_EQ(table.status[i], std::isnan(r2[i]) ? kNotComputed : 0);
  });
  EXPECT_TRUE(layout.is_causal(2, 7) && layout.is_causal(5, 8));  // of layers 0 and 1, 1 and 2
  EXPECT_FALSE(layout.is_causal(2, 6) || layout.is_causal(3, 7) || layout.is_causal(7, 8));
}

TEST(Pairwise, AgreesWithLeastSquaresOnTheActivations) {
  struct Case {
    HeadLayout layout;
    std::int64_t tokens, latents;
  };
  for (const Case& c : {Case{make_layout(2, 3, 2), 60, 4}, Case{make_layout(1, 5, 1), 40, 3},
                        Case{make_layout(3, 3, 3), 50, 7}, Case{make_layout(2, 1, 8), 90, 11}}) {
    const HeadLayout& layout = c.layout;
    const Activations fit = correlated(c.tokens, layout.columns(), c.latents, 0.3, 1, 2);
    const Activations heldout = correlated(25, layout.columns(), c.latents, 0.3, 1, 3);
    const std::size_t n = to_size(layout.heads() * layout.heads());
    std::vector<double> r2(n, kNaN), weighted(n, kNaN), r2_heldout(n, kNaN);
    for (std::int64_t t = 0; t < layout.heads(); ++t)
      for (std::int64_t s = 0; s < layout.heads(); ++s) {
        if (s == t) continue;
        const OlsScore score = reference_ols(fit, &heldout, layout.head_size, {s}, t);
        const std::size_t at = to_size(t * layout.heads() + s);
        r2[at] = score.r2;
        weighted[at] = score.r2_weighted;
        r2_heldout[at] = score.r2_heldout;
      }

    on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
      const PairTable table = pairs_of(grid, layout, fit, &heldout, {block});

      expect_near(table.r2, r2, 1e-9, "r2");
      expect_near(table.r2_weighted, weighted, 1e-9, "r2_weighted");
      expect_near(table.r2_heldout, r2_heldout, 1e-9, "r2_heldout");
      for (std::size_t i = 0; i < n; ++i) EXPECT_EQ(table.status[i], std::isnan(r2[i]) ? kNotComputed : 0);
      for (const int rank : table.rank) EXPECT_EQ(rank, layout.head_size);
      for (const double pivot : table.pivot) EXPECT_GT(pivot, 1e-6);
    });
  }
}

TEST(Pairwise, IsTheSameOnEveryGrid) {
  const HeadLayout layout = make_layout(2, 5, 3);
  const Activations fit = correlated(200, layout.columns(), 6, 0.1, 4, 5);
  const Activations heldout = correlated(50, layout.columns(), 6, 0.1, 4, 6);
  const PairTable expected = serial_pairs(layout, fit, &heldout);

  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const PairTable table = pairs_of(grid, layout, fit, &heldout, {block});

    expect_near(table.r2, expected.r2, 1e-10, "r2");
    expect_near(table.r2_weighted, expected.r2_weighted, 1e-10, "r2_weighted");
    expect_near(table.r2_heldout, expected.r2_heldout, 1e-10, "r2_heldout");
    expect_near(table.pivot, expected.pivot, 1e-10, "pivot");
    EXPECT_EQ(table.status, expected.status);
    EXPECT_EQ(table.rank, expected.rank);
  });
}

TEST(Pairwise, HasTheSameBitsWhenRepeated) {
  const HeadLayout layout = make_layout(1, 7, 2);
  const Activations fit = correlated(100, layout.columns(), 6, 0.1, 7, 8);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const PairTable first = pairs_of(grid, layout, fit, &fit, {block});
    const PairTable second = pairs_of(grid, layout, fit, &fit, {block});

    expect_near(first.r2, second.r2, 0, "r2");
    expect_near(first.r2_heldout, second.r2_heldout, 0, "r2_heldout");
  });
}

// Orthogonal columns of equal length: target = a * (source's own directions) + b * (directions of its own),
// so that R² = a² / (a² + b²) for one coordinate, whatever mixes the source.
TEST(Pairwise, FindsAPlantedR2) {
  constexpr std::int64_t kHeadSize = 3, kHeads = 4;
  const HeadLayout layout = make_layout(1, kHeads, kHeadSize);
  const Activations basis = cosines(500, 2 * kHeadSize), mixing = gaussian(kHeadSize, kHeadSize, 9);
  const double noise[] = {0.5, 1, 4};  // of the three coordinates of head 1
  Activations z = gaussian(500, layout.columns(), 10);
  for (std::int64_t t = 0; t < z.tokens; ++t)
    for (std::int64_t j = 0; j < kHeadSize; ++j) {
      z.at(t, j) = 100;
      for (std::int64_t k = 0; k < kHeadSize; ++k) z.at(t, j) += basis.at(t, k) * mixing.at(k, j);
      z.at(t, kHeadSize + j) = basis.at(t, j) + noise[j] * basis.at(t, kHeadSize + j) - 7;
    }
  double mean = 0, explained_sum = 0, total = 0;
  for (const double b : noise) {
    mean += 1 / (1 + b * b) / 3;
    explained_sum += 1;
    total += 1 + b * b;
  }

  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const PairTable table = pairs_of(grid, layout, z, nullptr, {block});

    EXPECT_NEAR(table.r2[kHeads], mean, 1e-12);  // target 1, source 0
    EXPECT_NEAR(table.r2_weighted[kHeads], explained_sum / total, 1e-12);
    EXPECT_TRUE(std::isnan(table.r2_heldout[kHeads]));
  });
}

double mean_of_numbers(const std::vector<double>& values) {
  double sum = 0;
  int count = 0;
  for (const double value : values)
    if (!std::isnan(value)) {
      sum += value;
      ++count;
    }
  return sum / count;
}

// R² of a coordinate on p independent columns is Beta(p/2, (n-1-p)/2): mean p/(n-1), variance 2 p (n-1-p) /
// ((n-1)² (n+1)). The mean over the 30 pairs x 4 coordinates, 15 x 4 of them independent, may err by 4
// standard errors.
TEST(Pairwise, OfPureNoiseIsTheNoiseFloor) {
  constexpr double kTokens = 1000, kRegressors = 4;
  const HeadLayout layout = make_layout(2, 3, 4);
  const Activations z = gaussian(1000, layout.columns(), 11);
  const double variance =
      2 * kRegressors * (kTokens - 1 - kRegressors) / ((kTokens - 1) * (kTokens - 1) * (kTokens + 1));

  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const PairTable table = pairs_of(grid, layout, z, nullptr, {block});

    EXPECT_NEAR(mean_of_numbers(table.r2), kRegressors / (kTokens - 1), 4 * std::sqrt(variance / 60));
  });
}

// Heads that are random projections of an m-dimensional hidden state: R² of a coordinate is Beta(d/2,
// (m-d)/2) over the draws, mean d/m, variance 2 d (m-d) / (m² (m+2)); the columns of a hidden basis that is
// orthogonal stand for infinitely many tokens.
TEST(Pairwise, OfRandomProjectionsIsTheGeometricNull) {
  constexpr double kHidden = 32, kHeadSize = 4;
  const HeadLayout layout = make_layout(1, 6, 4);
  const Activations z = product(cosines(200, 32), gaussian(32, layout.columns(), 12));
  const double variance = 2 * kHeadSize * (kHidden - kHeadSize) / (kHidden * kHidden * (kHidden + 2));

  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const PairTable table = pairs_of(grid, layout, z, nullptr, {block});

    EXPECT_NEAR(mean_of_numbers(table.r2), kHeadSize / kHidden, 4 * std::sqrt(variance / 60));
  });
}

// Head 1 copies 0, 2 has a constant coordinate, 3 is constant, 4 nearly copies 0, 5 has two equal
// coordinates.
Activations degenerate(std::int64_t tokens, std::uint64_t seed) {
  Activations z = gaussian(tokens, 7 * 2, seed);
  copy_head(z, 2, 0, 1);
  make_constant(z, 4, 0.1);
  make_constant(z, 6, -3e5);
  make_constant(z, 7, 0);
  const Activations change = gaussian(tokens, 2, seed + 1);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < 2; ++i) z.at(t, 8 + i) = z.at(t, i) + 1e-5 * change.at(t, i);
    z.at(t, 11) = z.at(t, 10);
  }
  return z;
}

TEST(Pairwise, FlagsDegenerateHeads) {
  const HeadLayout layout = make_layout(1, 7, 2);
  const Activations fit = degenerate(100, 13), heldout = degenerate(40, 15);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const PairTable table = pairs_of(grid, layout, fit, &heldout, {block});

    const auto at = [](std::int64_t target, std::int64_t source) { return to_size(target * 7 + source); };
    for (const std::size_t copy : {at(0, 1), at(1, 0)}) {
      EXPECT_NEAR(table.r2[copy], 1, 1e-12);
      EXPECT_NEAR(table.r2_heldout[copy], 1, 1e-12);
      EXPECT_EQ(table.status[copy], 0);
    }
    const std::vector<int> ranks{2, 2, 1, 0, 2, 1, 2};
    EXPECT_EQ(table.rank, ranks);
    EXPECT_TRUE(std::isnan(table.pivot[3]));
    for (std::int64_t t = 0; t < 7; ++t)
      for (std::int64_t s = 0; s < 7; ++s) {
        if (s == t) continue;
        const int expected = (ranks[to_size(s)] < 2 ? kDeficient : 0) | (t == 2 || t == 3 ? kConstant : 0);
        EXPECT_EQ(table.status[at(t, s)], expected) << t << " from " << s;
        const bool no_variance = t == 3;
        EXPECT_EQ(std::isnan(table.r2[at(t, s)]), no_variance);
        EXPECT_EQ(std::isnan(table.r2_heldout[at(t, s)]), no_variance);
        if (no_variance) continue;
        const OlsScore score = reference_ols(fit, &heldout, 2, {s}, t);
        EXPECT_NEAR(table.r2[at(t, s)], score.r2, 1e-9) << t << " from " << s;
        EXPECT_NEAR(table.r2_weighted[at(t, s)], score.r2_weighted, 1e-9) << t << " from " << s;
        EXPECT_NEAR(table.r2_heldout[at(t, s)], score.r2_heldout, 1e-9) << t << " from " << s;
      }
    EXPECT_EQ(table.r2[at(0, 3)], 0);
    const double unexplained = 1 - reference_ols(fit, nullptr, 2, {0}, 4).r2;  // about 1e-10
    EXPECT_NEAR(1 - table.r2[at(4, 0)], unexplained, 1e-3 * unexplained);
  });
}

// Head 0 has two coordinates that differ by `change` of their length, head 1 copies it, and head 2 depends on
// the difference as much as on the sum.
Activations nearly_deficient(double change, std::uint64_t seed) {
  const Activations random = gaussian(200, 5, seed);
  Activations z{200, 6, std::vector<double>(1200)};
  for (std::int64_t t = 0; t < z.tokens; ++t) {
    z.at(t, 0) = z.at(t, 2) = random.at(t, 0);
    z.at(t, 1) = z.at(t, 3) = random.at(t, 0) + change * random.at(t, 1);
    z.at(t, 4) = random.at(t, 0) + random.at(t, 1) + random.at(t, 2);
    z.at(t, 5) = random.at(t, 1) - random.at(t, 3);
  }
  return z;
}

// A Gram keeps R² to about eps64 / pivot.
TEST(Pairwise, KeepsWhatDigitsTheGramOfANearlyDeficientHeadHas) {
  const HeadLayout layout = make_layout(1, 3, 2);
  for (const double change : {1e-3, 1e-5, 1e-7}) {
    const Activations fit = nearly_deficient(change, 30), heldout = nearly_deficient(change, 31);
    const OlsScore score = reference_ols(fit, &heldout, 2, {0}, 2);
    const double tolerance = 10 * std::numeric_limits<double>::epsilon() / (change * change);
    on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
      const PairTable table = pairs_of(grid, layout, fit, &heldout, {block});

      EXPECT_NEAR(table.r2[2 * 3], score.r2, tolerance);
      EXPECT_NEAR(table.r2_heldout[2 * 3], score.r2_heldout, tolerance);
      EXPECT_NEAR(table.r2[1 * 3], 1, 1e-9);
      EXPECT_EQ(table.rank[0], 2);
      EXPECT_EQ(table.status[2 * 3] | table.status[1 * 3], 0);
      EXPECT_LT(table.pivot[0], 2 * change * change);
    });
  }
}

TEST(Pairwise, CountsConstantsAsOneInPaperMode) {
  const HeadLayout layout = make_layout(1, 7, 2);
  const Activations fit = degenerate(100, 17);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    FitRules rules;
    rules.paper = true;
    const PairTable table = gather(
        grid.comm(), all_pairs(regression_data(layout, rules, make_gram(grid, fit, {block}), std::nullopt)));

    EXPECT_EQ(table.r2[3 * 7], 1);
    EXPECT_NEAR(table.r2[2 * 7], (1 + reference_ols(fit, nullptr, 2, {0}, 2).r2) / 2, 1e-9);
  });
}

TEST(Pairwise, AnswersNothingWithTooFewTokens) {
  const HeadLayout layout = make_layout(1, 3, 2);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const Activations four = gaussian(4, 6, 18), three = gaussian(3, 6, 18);

    const PairTable enough = pairs_of(grid, layout, four, &four, {block});
    const PairTable few = pairs_of(grid, layout, three, &four, {block});

    for (std::size_t i = 0; i < 9; ++i) {
      const bool diagonal = i % 4 == 0;
      EXPECT_EQ(enough.status[i], diagonal ? kNotComputed : 0);
      EXPECT_EQ(few.status[i], diagonal ? kNotComputed : kTooFewTokens);
      EXPECT_EQ(std::isnan(enough.r2[i]), diagonal);
      EXPECT_TRUE(std::isnan(few.r2[i]) && std::isnan(few.r2_weighted[i]) && std::isnan(few.r2_heldout[i]));
    }
  });
}

TEST(Pairwise, OfOneHeadHasNothingToSay) {
  const HeadLayout layout = make_layout(1, 1, 3);
  const Activations z = gaussian(20, 3, 19);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const PairTable table = pairs_of(grid, layout, z, &z, {block});

    ASSERT_EQ(table.r2.size(), 1U);
    EXPECT_TRUE(std::isnan(table.r2[0]));
    EXPECT_EQ(table.status[0], kNotComputed);
    EXPECT_EQ(table.rank[0], 3);
  });
}

TEST(Pairwise, TellsAllRanksOfAFailureOnOne) {
  const HeadLayout layout = make_layout(1, 3, 2);
  const Activations z = gaussian(20, layout.columns(), 23);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const RegressionData data = make_data(grid, layout, z, nullptr, {block});
    const bool last = grid.comm().rank() == grid.comm().size() - 1;
    const auto fails = [&](const RegressionData& d, const PairSources& sources, const PairSink& sink) {
      if (last) throw Error("no such device");
      host_pair_sums(d, sources, sink);
    };
    EXPECT_THROW(all_pairs(data, fails), AgreedError);
  });
}

// What is asked of split and bfloat16, on heads that predict each other from badly to almost perfectly. (The
// rounding to bfloat16 is noise in the regressors, so that no bound holds for all data.)
TEST(Pairwise, MovesLittleInLowerPrecision) {
  const HeadLayout layout = make_layout(1, 8, 4);
  Activations z = correlated(2000, layout.columns(), 20, 0.3, 20, 21);
  const Activations change = gaussian(2000, layout.columns(), 22);
  for (std::int64_t t = 0; t < z.tokens; ++t)
    for (std::int64_t j = 0; j < 8; ++j) z.at(t, j + 8) = z.at(t, j) + (j < 4 ? 0.01 : 0.1) * change.at(t, j);
  const PairTable exact = serial_pairs(layout, z, nullptr);

  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    const auto expect_within = [&](Precision precision, double tolerance, const char* what) {
      const PairTable table = pairs_of(grid, layout, z, nullptr, {block, precision, 512});
      expect_near(table.r2, exact.r2, tolerance, what);
      EXPECT_EQ(table.status, exact.status) << what;
    };
    expect_within(Precision::float32, 1e-6, "float32");
    const bool integers = fastest_product(Precision::split) == ProductKind::integers;
    expect_within(Precision::split, integers ? 1e-7 : 1e-6, "split");
    expect_within(Precision::bfloat16, 1e-4, "bfloat16");
  });
}

}  // namespace
}  // namespace headspan
