// Shares of a collector that follow each other on a GPU which has room for the Grams of one of them.
#include <cstdlib>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "device/device_collector.h"
#include "dist/comm/gpu.h"
#include "support/grids.h"

namespace headspan {
namespace {

constexpr std::int64_t kColumns = 3072, kBlock = 64, kTokens = 16;

/// Whole numbers, whose sums are exact: of a token of all ranks.
double value(std::size_t stream, std::int64_t token, std::int64_t column) {
  return static_cast<double>((token * 7 + column * 3 + static_cast<std::int64_t>(stream)) % 5 - 2);
}

TEST(Passes, NeedRoomForTheGramsOfOneAtATime) {
  setenv("SIMULATED_GPU_BYTES", "268435456", 1);  // few: what is taken is written to
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(world.rank()));
  const ProcessGrid shape = usual_grid(world.size());
  const Grid grid(world, shape.rows, shape.columns);
  const auto comm = make_device_comm(world, device.index());
  const std::vector<std::int64_t> columns{kColumns, kColumns};
  const std::int64_t gram = 8 * DeviceGram(grid, kColumns, kBlock, at::kCPU).elements();
  const std::int64_t waiting =
      8 * kColumns *
      (panel_tokens<double>(grid.shape(), columns, Precision::float64, false) / world.size() + kTokens);
  const std::int64_t room = gram + gram / 2 + waiting;
  const at::Tensor others =
      at::empty({free_gpu_memory(device.index()) - room}, at::dtype(at::kByte).device(device));

  DeviceCollector<double> collector(grid, *comm, {columns, {kBlock, kBlock}, Precision::float64, false},
                                    device, at::kDouble);
  for (const std::size_t stream : {0, 1}) {
    collector.start_share({{stream}, {Part::fit}, {}});
    at::Tensor host = at::empty({kTokens, kColumns}, at::kDouble);
    for (std::int64_t t = 0; t < kTokens; ++t)
      for (std::int64_t j = 0; j < kColumns; ++j)
        host.data_ptr<double>()[t * kColumns + j] = value(stream, world.rank() * kTokens + t, j);
    collector.add_rows(stream, Part::fit, kTokens).copy_(host);
    collector.end_round(Part::fit, kTokens * world.size());
  }
  std::vector<StreamGrams> grams = collector.finish();

  ASSERT_EQ(grams.size(), 2u);
  const std::int64_t tokens = kTokens * world.size();
  for (const std::size_t stream : {0, 1}) {
    const HeadGram& found = grams[stream].fit;
    ASSERT_EQ(found.tokens, tokens);
    for (const auto& [row, column] :
         {std::pair<std::int64_t, std::int64_t>{5, 5}, {3000, 17}, {3071, 3070}}) {
      double products = 0, of_row = 0, of_column = 0;
      for (std::int64_t t = 0; t < tokens; ++t) {
        products += value(stream, t, row) * value(stream, t, column);
        of_row += value(stream, t, row);
        of_column += value(stream, t, column);
      }
      const Matrix& matrix = found.matrix;
      if (matrix.owner(row, column) != world.rank()) continue;
      EXPECT_NEAR(*matrix.at(matrix.rows().local(row), matrix.columns().local(column)),
                  products - of_row * of_column / static_cast<double>(tokens), 1e-9);
    }
  }
}

}  // namespace
}  // namespace headspan
