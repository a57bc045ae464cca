// One regression from moments: NIST's certified sets through the production Gram, and the rules of scoring.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "stats/gram/gram.h"
#include "stats/regression/regression.h"
#include "support/grids.h"
#include "support/synthetic.h"

namespace headspan {
namespace {

/// A set of NIST's StRD (tests/data/strd/README.md).
struct CertifiedSet {
  Activations columns;  // the regressors, y last
  bool intercept = true;
  double r2 = 0;
};

/// With powers of (x - x_shift) where the model is a polynomial.
CertifiedSet read_strd(const std::string& name, double x_shift = 0) {
  std::ifstream file(HEADSPAN_TEST_DATA "/strd/" + name + ".dat");
  HS_ASSERT(file.good());
  std::map<std::string, std::string> header;
  CertifiedSet set;
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') {
      const std::size_t colon = line.find(": ");
      header[line.substr(2, colon - 2)] = line.substr(colon + 2);
      continue;
    }
    std::istringstream row(line);
    double y = 0;
    row >> y;
    const int degree = std::stoi(header.at("degree"));
    for (double x = 0; row >> x;)
      for (int power = 1; power <= degree; ++power)
        set.columns.values.push_back(std::pow(degree > 1 ? x - x_shift : x, power));
    set.columns.values.push_back(y);
    ++set.columns.tokens;
  }
  set.columns.columns = static_cast<std::int64_t>(set.columns.values.size()) / set.columns.tokens;
  set.intercept = header.at("intercept") == "yes";
  set.r2 = std::stod(header.at("r_squared"));
  HS_ASSERT(set.columns.tokens == std::stol(header.at("observations")));
  return set;
}

struct Fit {
  Score score;
  std::int64_t rank, regressors;
};

/// The last column from the others, by the production path from the panels on. Collective over grid.
Fit fit_last(const Grid& grid, const CertifiedSet& set, Precision precision) {
  HeadGram gram = make_gram(grid, set.columns, {2, precision, 10});
  if (!set.intercept) recentre(gram, std::vector<double>(gram.mean.size(), 0.0));
  const std::vector<double> g = gather_symmetric(gram.matrix);
  const std::int64_t ld = set.columns.columns, p = ld - 1;
  std::vector<double> sst;
  for (std::int64_t j = 0; j < ld; ++j) sst.push_back(g[to_size(j + j * ld)]);
  FitRules rules;
  rules.tokens = gram.tokens;
  rules.double_product = precision == Precision::float64;
  const Factor factor = factor_regressors(g.data(), p, ld, sst.data(), rules.pivot_tolerance(p));
  const std::vector<double> gains = explained(whiten(factor, &g[to_size(p)], ld, 1), 1);
  return {score_fit(rules, 1, {gains.data(), &sst[to_size(p)]}, factor.rank < p), factor.rank, p};
}

/// Correct decimal digits, at most 15.
double lre(double value, double certified) {
  const double error = std::abs(value - certified) / std::abs(certified);
  return error == 0 ? 15 : std::min(15.0, -std::log10(error));
}

constexpr const char* kSolvable[] = {"norris",   "pontius",  "noint1",   "noint2",   "longley",
                                     "wampler1", "wampler2", "wampler3", "wampler4", "wampler5"};

TEST(CertifiedRegression, HasThirteenDigitsOnTheTenSets) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);
    for (const char* name : kSolvable) {
      const CertifiedSet set = read_strd(name);

      const Fit fit = fit_last(grid, set, Precision::float64);

      EXPECT_GE(lre(fit.score.r2, set.r2), 13) << name << ": " << fit.score.r2;
      EXPECT_EQ(fit.rank, fit.regressors) << name;
      EXPECT_EQ(fit.score.status, 0) << name;
    }
  }
}

TEST(CertifiedRegression, KeepsFiveDigitsInFloat32) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ProcessGrid shape = usual_grid(world.size());
  const Grid grid(world, shape.rows, shape.columns);
  for (const char* name : kSolvable) {
    const CertifiedSet set = read_strd(name);

    const Fit fit = fit_last(grid, set, Precision::float32);

    EXPECT_GE(lre(fit.score.r2, set.r2), 5.5) << name << ": " << fit.score.r2;
    EXPECT_EQ(fit.score.status, 0) << name;
  }
}

TEST(CertifiedRegression, FlagsFilipAndSolvesItWithXShifted) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);
    CertifiedSet raw = read_strd("filip");
    double mean = 0;
    for (std::int64_t t = 0; t < raw.columns.tokens; ++t)
      mean += raw.columns.at(t, 0) / static_cast<double>(raw.columns.tokens);
    const CertifiedSet shifted = read_strd("filip", mean);

    const Fit flagged = fit_last(grid, raw, Precision::float64);
    const Fit solved = fit_last(grid, shifted, Precision::float64);

    EXPECT_EQ(flagged.score.status, kDeficient);
    EXPECT_LT(flagged.rank, 10);
    EXPECT_GE(flagged.rank, 8);
    EXPECT_EQ(solved.score.status, 0);
    EXPECT_GE(lre(solved.score.r2, shifted.r2), 11) << solved.score.r2;
  }
}

TEST(Factor, DropsWhatOthersSpanAndWhatIsConstant) {
  // Columns a, b, a + b, a constant: rank 2.
  const double gram[] = {2, 0, 2, 0, 0, 8, 8, 0, 2, 8, 10, 0, 0, 0, 0, 1e-30};
  const double variance[] = {2, 8, 10, 0};

  const Factor factor = factor_regressors(gram, 4, 4, variance, 4 * std::numeric_limits<double>::epsilon());

  EXPECT_EQ(factor.rank, 2);
  EXPECT_EQ(std::count(factor.order.begin(), factor.order.end(), 3), 0);
  EXPECT_GT(factor.pivot, 0.1);
  const double cross[] = {4, 8, 12, 0};  // of 2 a + b with the four
  EXPECT_NEAR(explained(whiten(factor, cross, 1, 1), 1)[0], 4 * 2 + 8, 1e-13);
}

TEST(Factor, OfConstantsAloneIsEmpty) {
  const double gram[] = {1e-30, 0, 0, 1e-30}, variance[] = {0, 0}, cross[] = {1, 2};

  const Factor factor = factor_regressors(gram, 2, 2, variance, 4e-16);

  EXPECT_EQ(factor.rank, 0);
  EXPECT_TRUE(std::isnan(factor.pivot));
  EXPECT_EQ(explained(whiten(factor, cross, 1, 1), 1), std::vector<double>{0});
}

TEST(Factor, MayBeASingleRegressor) {
  const double gram = 4, variance = 4, cross = 6;

  const Factor factor = factor_regressors(&gram, 1, 1, &variance, 1e-15);
  const std::vector<double> x = whiten(factor, &cross, 1, 1);

  EXPECT_EQ(factor.pivot, 1);
  EXPECT_DOUBLE_EQ(explained(x, 1)[0], 9);
  EXPECT_DOUBLE_EQ(solve_maps(factor, 1, x, 1)[0], 1.5);
}

TEST(FitRules, SetToleranceBandAndTheFewestTokens) {
  FitRules rules;
  rules.tokens = 12;
  EXPECT_DOUBLE_EQ(rules.pivot_tolerance(64), 64 * 0x1p-52);
  EXPECT_EQ(rules.band(), 1e-9);
  EXPECT_FALSE(rules.too_few(10));
  EXPECT_TRUE(rules.too_few(11));

  rules.double_data = false;
  EXPECT_DOUBLE_EQ(rules.pivot_tolerance(64), 10 * 64 * 0x1p-46);
  EXPECT_EQ(rules.band(), 1e-9);

  rules.double_data = true;
  rules.double_product = false;
  EXPECT_DOUBLE_EQ(rules.pivot_tolerance(64), 10 * 64 * 0x1p-46);
  EXPECT_EQ(rules.band(), 1e-5);
}

TEST(Score, AveragesCoordinatesEvenlyAndByVariance) {
  const double explained[] = {1, 3}, sst[] = {2, 4}, errors[] = {5, 1}, heldout[] = {4, 4};

  const Score score = score_fit(FitRules{}, 2, {explained, sst, errors, heldout}, false);

  EXPECT_DOUBLE_EQ(score.r2, 0.625);
  EXPECT_DOUBLE_EQ(score.r2_weighted, 4.0 / 6);
  EXPECT_DOUBLE_EQ(score.r2_heldout, 0.25);
  EXPECT_EQ(score.status, 0);
}

TEST(Score, LeavesConstantCoordinatesOut) {
  const double explained[] = {0, 3}, sst[] = {0, 4}, errors[] = {5, 1}, heldout[] = {4, 0};

  const Score score = score_fit(FitRules{}, 2, {explained, sst, errors, heldout}, true);

  EXPECT_DOUBLE_EQ(score.r2, 0.75);
  EXPECT_DOUBLE_EQ(score.r2_weighted, 0.75);
  EXPECT_DOUBLE_EQ(score.r2_heldout, -0.25);
  EXPECT_EQ(score.status, kConstant | kDeficient);
}

TEST(Score, IsNoNumberWithoutVariance) {
  const double zero[] = {0, 0};

  const Score score = score_fit(FitRules{}, 2, {zero, zero}, false);

  EXPECT_TRUE(std::isnan(score.r2) && std::isnan(score.r2_weighted) && std::isnan(score.r2_heldout));
  EXPECT_EQ(score.status, kConstant);
}

TEST(Score, FlagsWhatLeavesTheBandAndDoesNotClampIt) {
  FitRules rules;
  const double sst = 1;
  const auto status = [&](double r2) { return score_fit(rules, 1, {&r2, &sst}, false).status; };

  EXPECT_EQ(status(1 + 0.9e-9), 0);
  EXPECT_EQ(status(1 + 1.1e-9), kOutsideBand);
  EXPECT_EQ(status(-0.9e-9), 0);
  EXPECT_EQ(status(-1.1e-9), kOutsideBand);
  const double beyond = 1.5;
  EXPECT_EQ(score_fit(rules, 1, {&beyond, &sst}, false).r2, 1.5);

  rules.double_product = false;
  EXPECT_EQ(status(1 + 0.9e-5), 0);
  EXPECT_EQ(status(1 + 1.1e-5), kOutsideBand);
}

TEST(Score, FollowsThePaperWhereAsked) {
  FitRules rules;
  rules.paper = true;
  const double explained[] = {0, 3}, sst[] = {0, 4}, worse = -7, one = 1;

  EXPECT_DOUBLE_EQ(score_fit(rules, 2, {explained, sst}, false).r2, (1 + 0.75) / 2);
  EXPECT_EQ(score_fit(rules, 1, {&worse, &one}, false).r2, -1);
}

TEST(HeldoutErrors, AreThoseOfTheMapsOnOtherMoments) {
  // Two regressors, one target, maps w = (2, 3) on M = [[1, 0.5], [0.5, 2]], M_st = (1, 1), M_tt = 50.
  const double gram[] = {4, 0, 0, 9}, variance[] = {4, 9}, cross[] = {8, 27};
  const double moment[] = {1, 0.5, 1, 0.5, 2, 1}, diagonal[] = {50};  // [M_ss; M_ts], column-major
  const Factor factor = factor_regressors(gram, 2, 2, variance, 1e-15);

  const auto maps = solve_maps(factor, 2, whiten(factor, cross, 1, 1), 1);
  const auto errors = heldout_errors(maps, 2, {moment, moment + 2, 3, diagonal}, 1);

  EXPECT_NEAR(errors[0], 50 - 2 * (2 + 3) + (4 * 1 + 2 * 6 * 0.5 + 9 * 2), 1e-13);
}

}  // namespace
}  // namespace headspan
