// Rows that arrive in uneven rounds against the Gram of all of them at once.
#include <algorithm>
#include <string>

#include <gtest/gtest.h>

#include "base/range.h"
#include "stats/gram/collector.h"
#include "support/grids.h"
#include "support/synthetic.h"

namespace headspan {
namespace {

/// Adds rows [first, last) of z as one round: uneven shares, and none for every third rank.
template <class T>
void add_round(Collector<T>& collector, const Comm& comm, std::size_t stream, Part part, const Activations& z,
               std::int64_t first, std::int64_t last) {
  const Range mine = dealt_tokens(last - first, comm.size(), comm.rank());
  const double* from = z.values.data() + (first + mine.first) * z.columns;
  std::transform(from, from + mine.count * z.columns, collector.add_rows(stream, part, mine.count),
                 [](double value) { return static_cast<T>(value); });
}

void expect_gram(const HeadGram& gram, const HeadGram& expected) {
  ASSERT_EQ(gram.tokens, expected.tokens);
  for (std::size_t j = 0; j < gram.mean.size(); ++j) EXPECT_NEAR(gram.mean[j], expected.mean[j], 1e-13);
  const std::vector<double> values = gather_symmetric(gram.matrix), all = gather_symmetric(expected.matrix);
  for (std::size_t k = 0; k < all.size(); ++k) ASSERT_NEAR(values[k], all[k], 1e-9) << k;
}

// Rounds far smaller and larger than a panel, two streams of different width, two parts.
TEST(Collector, GathersRoundsIntoTheGramOfAllRows) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  for (const ProcessGrid shape : all_grids(world.size())) {
    const Grid grid(world, shape.rows, shape.columns);
    SCOPED_TRACE(std::to_string(shape.rows) + "x" + std::to_string(shape.columns));
    const std::vector<std::int64_t> columns{12, 4};
    Collector<double> collector(grid, {columns, {4, 2}, Precision::float64, true});
    const std::int64_t panel = panel_tokens<double>(grid.shape(), columns, Precision::float64, true);
    const std::vector<std::int64_t> rounds{1, 0, panel - 2, 5, 2 * panel + 3, 7};
    std::int64_t tokens = 0;
    for (const std::int64_t round : rounds) tokens += round;
    const Activations z[2][2] = {{correlated(tokens, 12, 3, 0.5, 1, 2), correlated(tokens, 12, 3, 0.5, 1, 3)},
                                 {correlated(tokens, 4, 3, 0.5, 4, 5), correlated(tokens, 4, 3, 0.5, 4, 6)}};

    std::int64_t first = 0;
    for (const std::int64_t round : rounds) {
      for (const Part part : {Part::fit, Part::heldout}) {
        for (std::size_t stream = 0; stream < 2; ++stream)
          add_round(collector, world, stream, part, z[stream][static_cast<std::size_t>(part)], first,
                    first + round);
        collector.end_round(part, round);
      }
      first += round;
    }
    const std::vector<StreamGrams> grams = collector.finish();

    ASSERT_EQ(grams.size(), 2u);
    for (std::size_t stream = 0; stream < 2; ++stream) {
      expect_gram(grams[stream].fit, make_gram(grid, z[stream][0], {stream == 0 ? 4 : 2}));
      ASSERT_TRUE(grams[stream].heldout);
      expect_gram(*grams[stream].heldout, make_gram(grid, z[stream][1], {stream == 0 ? 4 : 2}));
    }
  }
}

TEST(Collector, OfNoRowsIsEmpty) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ProcessGrid shape = usual_grid(world.size());
  const Grid grid(world, shape.rows, shape.columns);
  Collector<float> collector(grid, {{6}, {2}, Precision::float32, false});

  const std::vector<StreamGrams> grams = collector.finish();

  ASSERT_EQ(grams.size(), 1u);
  EXPECT_EQ(grams[0].fit.tokens, 0);
  EXPECT_FALSE(grams[0].heldout);
}

// What waits and is multiplied: at most an eighth of the Grams, or 128 MiB.
TEST(Collector, ChoosesPanelsThatAreSmallBesideTheGrams) {
  const Comm self = Comm::duplicate(MPI_COMM_SELF);
  const Grid grid(self, 1, 1);
  const auto panel = [&](std::int64_t columns, Precision precision) {
    return panel_tokens<float>(grid.shape(), {columns}, precision, false);
  };

  EXPECT_EQ(panel(64, Precision::float64), 4096);    // never more
  EXPECT_EQ(panel(4096, Precision::float32), 4096);  // 128 MiB / (4 + 4 bytes) / 4096 columns
  EXPECT_EQ(panel(8192, Precision::float32), 2048);
  EXPECT_EQ(panel(8192, Precision::float64), 1280);  // 128 MiB / (4 + 8 bytes) / 8192, in steps of 256
}

}  // namespace
}  // namespace headspan
