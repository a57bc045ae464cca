// Causal ceilings against least squares on the raw activations, on every grid.
#include <limits>
#include <numeric>

#include "stats/layers/causal_ceiling.h"
#include "support/grids.h"
#include "support/reference_ols.h"
#include "support/tables.h"

namespace headspan {
namespace {

/// Each head from all earlier ones; NaN from the first on that has too many.
std::vector<double> by_least_squares(const HeadLayout& layout, const Activations& fit) {
  std::vector<double> r2(static_cast<std::size_t>(layout.heads()), std::numeric_limits<double>::quiet_NaN());
  for (std::int64_t t = 1; t < layout.heads() && t * layout.head_size < fit.tokens - 1; ++t) {
    std::vector<std::int64_t> earlier(static_cast<std::size_t>(t));
    std::iota(earlier.begin(), earlier.end(), 0);
    r2[static_cast<std::size_t>(t)] = reference_ols(fit, nullptr, layout.head_size, earlier, t).r2;
  }
  return r2;
}

void expect_causal(const HeadLayout& layout, const Activations& fit, double tolerance) {
  const std::vector<double> expected = by_least_squares(layout, fit);
  on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
    RegressionData data = make_data(grid, layout, fit, nullptr, {block});
    expect_near(causal_ceiling(data), expected, tolerance, "r2");
    EXPECT_TRUE(data.fit.matrix.guards_intact());
  });
}

TEST(CausalCeiling, AgreesWithLeastSquares) {
  for (const HeadLayout& layout : {make_layout(2, 3, 4), make_layout(3, 4, 1), make_layout(1, 5, 3)})
    expect_causal(layout, correlated(90, layout.columns(), 7, 0.3, 1, 2), 1e-11);
}

TEST(CausalCeiling, PassesOverDependentHeads) {
  const HeadLayout layout = make_layout(2, 4, 2);
  Activations fit = correlated(60, layout.columns(), 5, 0.5, 1, 2);
  copy_head(fit, 2, 0, 2);
  copy_head(fit, 2, 1, 3);
  make_constant(fit, 4 * 2, 17.5);
  expect_causal(layout, fit, 1e-9);
}

TEST(CausalCeiling, EndsWhereTokensDo) {
  const HeadLayout layout = make_layout(2, 4, 2);
  for (const std::int64_t tokens : {2, 3, 4, 7, 9}) {
    SCOPED_TRACE(std::to_string(tokens) + " tokens");
    expect_causal(layout, correlated(tokens, layout.columns(), 5, 0.5, 1, 2), 1e-9);
  }
}

}  // namespace
}  // namespace headspan
