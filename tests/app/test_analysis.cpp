// The statistics of a stream with the heavy products on a device, against those in host memory.
#include "app/study/analysis.h"
#include "support/on_device.h"
#include "support/resident.h"
#include "support/tables.h"

namespace headspan {
namespace {

using Analysis = OnDevice;
INSTANTIATE_TEST_SUITE_P(On, Analysis, testing::Values(at::kCPU, at::kCUDA), name_of_device);

void expect_the_hosts(const StreamResult& result, const StreamResult& host) {
  ASSERT_EQ(result.selections.size(), 2U);
  const SelectionTable &pairwise = result.selections[0].table, &forward = result.selections[1].table,
                       &hosts_pairwise = host.selections[0].table, &hosts_forward = host.selections[1].table;
  // The device sums 128 products at a time, the host 512; means inflate coordinates by less than 1e2.
  expect_near(result.pairs.r2, host.pairs.r2, 1e-12, "pairs");
  expect_near(result.pairs.r2_heldout, host.pairs.r2_heldout, 1e-12, "pairs, held out");
  EXPECT_EQ(result.pairs.status, host.pairs.status);
  EXPECT_EQ(forward.sources, hosts_forward.sources);
  expect_near(forward.r2, hosts_forward.r2, 1e-12, "forward");
  expect_near(result.layer_ceiling->r2, host.layer_ceiling->r2, 1e-12, "ceiling");
  expect_near(result.layer_ceiling->r2_heldout, host.layer_ceiling->r2_heldout, 1e-11, "ceiling, held out");
  EXPECT_EQ(result.layer_ceiling->status, host.layer_ceiling->status);
  EXPECT_EQ(pairwise.sources, hosts_pairwise.sources);
  expect_near(pairwise.r2_heldout, hosts_pairwise.r2_heldout, 1e-11, "pairwise, held out");
  expect_near(result.heads.effective_rank, host.heads.effective_rank, 1e-10, "effective rank");
  expect_near(result.heads.effective_rank_layer, host.heads.effective_rank_layer, 1e-10, "of the layer");
  expect_near(result.angles.cosines, host.angles.cosines, 1e-10, "angles");
}

// Layers of 4 heads and of 1: the first is wide (512 columns), and is therefore inverted.
TEST_P(Analysis, OnADeviceEqualsThatOnTheHost) {
  HeadLayout layout = make_layout(1, 5, 128);
  layout.layer = {0, 0, 0, 0, 1};
  layout.head = {0, 1, 2, 3, 0};
  const Activations fit = correlated(700, layout.columns(), 30, 1, 1, 2);
  const Activations heldout = correlated(300, layout.columns(), 30, 1, 1, 3);
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const ProcessGrid shape = usual_grid(world.size());
  const Grid grid(world, shape.rows, shape.columns);
  const auto data = [&] { return make_data(grid, layout, fit, &heldout, {128}); };
  AnalysisRequest request;
  request.references = request.pool = 2;
  Profile profile;
  ASSERT_TRUE(fits_device(data(), request, device_));
  const StreamResult host = analyse(data(), {}, request, profile);

  request.device = device_;
  expect_the_hosts(analyse(data(), {}, request, profile), host);

  ResidentGrams resident = make_resident(grid, fit, &heldout, 128, device_);
  RegressionData taken = resident.take_data(layout, {});
  expect_the_hosts(analyse(std::move(taken), {}, request, profile, std::move(resident)), host);
}

}  // namespace
}  // namespace headspan
