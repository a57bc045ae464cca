// Grams that stay on a device against those that the host's updater makes of the same rows, on every grid:
// what comes to the host, and what does not.
#include <cmath>

#include "device/device_pairs.h"
#include "support/on_device.h"
#include "support/resident.h"
#include "support/tables.h"

namespace headspan {
namespace {

// Sums in FP64 of some 100 numbers in another order, about another origin.
constexpr double kRounding = 1e-12;

using ResidentGramsOn = OnDevice;
INSTANTIATE_TEST_SUITE_P(On, ResidentGramsOn, testing::Values(at::kCPU, at::kCUDA), name_of_device);

/// In units of the largest.
void expect_close(const std::vector<double>& values, const std::vector<double>& expected, const char* what) {
  double largest = 1e-300;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  expect_near(values, expected, kRounding * largest, what);
}

/// Calls check(data, expected, resident) for several layouts and grids, with a held-out part and without.
template <class Check>
void on_every_layout(at::Device device, const Check& check) {
  for (const HeadLayout& layout : {make_layout(2, 3, 1), make_layout(3, 5, 3), make_layout(2, 1, 16)}) {
    const Activations fit = correlated(300, layout.columns(), 9, 0.3, 1, 2);
    const Activations heldout = correlated(100, layout.columns(), 9, 0.3, 1, 3);
    for (const Activations* second : {&heldout, static_cast<const Activations*>(nullptr)})
      on_every_grid(layout, [&](const Grid& grid, std::int64_t block) {
        ResidentGrams resident = make_resident(grid, fit, second, block, device);
        RegressionData data = resident.take_data(layout, {});
        check(data, make_data(grid, layout, fit, second, {block}), resident);
      });
  }
}

std::vector<Tile> all_tiles(const HeadLayout& layout, bool of_layers) {
  std::vector<Tile> tiles;
  for (std::int64_t row = 0; row < layout.heads(); ++row)
    for (std::int64_t column = 0; column <= row; ++column)
      if ((layout.layer[static_cast<std::size_t>(row)] == layout.layer[static_cast<std::size_t>(column)]) ==
          of_layers)
        tiles.push_back({row, column});
  return tiles;
}

void expect_tiles(const RegressionData& data, const RegressionData& expected,
                  const std::vector<Tile>& tiles) {
  const std::int64_t d = data.layout.head_size;
  expect_close(fetch_tiles(data.fit.matrix, d, tiles), fetch_tiles(expected.fit.matrix, d, tiles), "fit");
  if (data.heldout)
    expect_close(fetch_tiles(data.heldout->matrix, d, tiles), fetch_tiles(expected.heldout->matrix, d, tiles),
                 "held out");
}

TEST_P(ResidentGramsOn, GiveTheHostsDataWithTheTilesOfLayersAlone) {
  on_every_layout(device_, [](RegressionData& data, const RegressionData& expected, const ResidentGrams&) {
    EXPECT_EQ(data.rules.tokens, expected.rules.tokens);
    EXPECT_EQ(data.rules.tokens_heldout, expected.rules.tokens_heldout);
    expect_close(data.fit.mean, expected.fit.mean, "mean");
    expect_close(data.sst, expected.sst, "sst");
    expect_close(data.sst_heldout, expected.sst_heldout, "sst, held out");
    expect_close(data.moment_diagonal, expected.moment_diagonal, "moment");
    expect_tiles(data, expected, all_tiles(data.layout, true));
    for (const double value :
         fetch_tiles(data.fit.matrix, data.layout.head_size, all_tiles(data.layout, false)))
      ASSERT_EQ(value, 0);
  });
}

TEST_P(ResidentGramsOn, BringWhatAnyRankAsksFor) {
  on_every_layout(device_,
                  [](RegressionData& data, const RegressionData& expected, const ResidentGrams& resident) {
                    const std::vector<Tile> tiles = all_tiles(data.layout, false);
                    std::vector<Tile> wanted;  // every other one by one rank, one of them by all
                    for (std::size_t t = 0; t < tiles.size(); t += 2)
                      if (t == 0 || static_cast<int>(t / 2) % data.comm().size() == data.comm().rank())
                        wanted.push_back(tiles[t]);
                    resident.copy_to_host(data, wanted);
                    expect_tiles(data, expected, wanted);
                    std::vector<Tile> others;
                    for (std::size_t t = 1; t < tiles.size(); t += 2) others.push_back(tiles[t]);
                    for (const double value : fetch_tiles(data.fit.matrix, data.layout.head_size, others))
                      ASSERT_EQ(value, 0);
                  });
}

TEST_P(ResidentGramsOn, BringEverything) {
  on_every_layout(
      device_, [](RegressionData& data, const RegressionData& expected, const ResidentGrams& resident) {
        resident.copy_all_to_host(data);
        expect_close(gather_symmetric(data.fit.matrix), gather_symmetric(expected.fit.matrix), "fit");
        if (data.heldout)
          expect_close(gather_symmetric(data.heldout->matrix), gather_symmetric(expected.heldout->matrix),
                       "held out");
      });
}

TEST_P(ResidentGramsOn, GiveTheHostsPairs) {
  on_every_layout(
      device_, [&](RegressionData& data, const RegressionData& expected, const ResidentGrams& resident) {
        const PairTable host = gather(data.comm(), all_pairs(expected));
        const PairTable table = gather(data.comm(), all_pairs(data, device_pair_sums(device_, &resident)));
        expect_near(table.r2, host.r2, kRounding, "r2");
        expect_near(table.r2_heldout, host.r2_heldout, kRounding, "r2_heldout");
        EXPECT_EQ(table.status, host.status);
      });
}

}  // namespace
}  // namespace headspan
