// Draws against the exact distribution of the minimum: a sum of chi-square variables.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "stats/nulls/theory.h"
#include "support/grids.h"

namespace headspan {
namespace {

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

TEST(Theory, HasMeanAndVarianceOfChiSquare) {
  TheoryRequest request;
  request.hidden_size = 40;
  request.head_size = 5;
  request.references = 3;
  request.trials = 400;
  request.seed = 9;
  const double freedom = 5 * (40 - 15);  // chi-square: mean f, variance 2 f
  ASSERT_EQ(expected_error(request), freedom);
  ASSERT_EQ(theorem_bound(request), 5 * 35 / 2.0);
  on_all_grids([&](const Grid& grid) {
    const TheoryResult result = run_theory(grid, request);

    const double average = mean(result.error);
    double variance = 0;
    for (const double e : result.error) variance += (e - average) * (e - average) / 399;
    EXPECT_NEAR(average, freedom, 4 * std::sqrt(2 * freedom / 400));
    EXPECT_NEAR(variance, 2 * freedom, 4 * 2 * freedom * std::sqrt(2.0 / 400));
    EXPECT_NEAR(mean(result.r2), 15.0 / 40, 4 * 0.07 / 20);
    for (std::size_t t = 0; t < 400; ++t)
      ASSERT_NEAR(result.error[t], result.local_error[t], 4 * 40 * 2.2e-16 * freedom * 4);
  });
}

TEST(Theory, DrawsTheSameOnEveryGridAndAnotherForAnotherSeed) {
  TheoryRequest request;
  request.hidden_size = 70;
  request.head_size = 4;
  request.trials = 7;
  const Grid alone(Comm::duplicate(MPI_COMM_SELF), 1, 1);
  const TheoryResult serial = run_theory(alone, request);
  TheoryRequest other = request;
  other.seed = 1;
  EXPECT_NE(run_theory(alone, other).error, serial.error);
  EXPECT_NE(serial.error[0], serial.error[1]);
  on_all_grids([&](const Grid& grid) {
    const TheoryResult result = run_theory(grid, request);
    for (std::size_t t = 0; t < 7; ++t) EXPECT_NEAR(result.error[t], serial.error[t], 1e-10);
  });
}

}  // namespace
}  // namespace headspan
