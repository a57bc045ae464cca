// What a device holds is found out together.
#include "device/device_room.h"
#include "support/on_device.h"

namespace headspan {
namespace {

using DeviceRoom = OnDevice;
INSTANTIATE_TEST_SUITE_P(On, DeviceRoom, testing::Values(at::kCPU, at::kCUDA), name_of_device);

TEST_P(DeviceRoom, IsThereWhereAllRanksHaveIt) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const std::int64_t small = 1 << 20, endless = std::int64_t{1} << 60;

  EXPECT_TRUE(have_room(world, device_, small));
  EXPECT_FALSE(have_room(world, device_, endless));
  EXPECT_FALSE(have_room(world, device_, world.rank() == world.size() - 1 ? endless : small));
  EXPECT_TRUE(have_room(world, device_, 0));
}

}  // namespace
}  // namespace headspan
