// A job of two ranks, one of which hangs. The other calls a sum that the first never calls, and must end the
// job with exit code 1 and rank 0's message, long before the sleeping rank wakes.
#include <chrono>
#include <cstdio>
#include <thread>

#include "dist/comm/device_comm.h"
#include "dist/comm/gpu.h"
#include "support/device_memory.h"

int main(int argc, char** argv) {
  using namespace headspan;
  MpiSession session(&argc, &argv);
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  if (world.min(visible_gpus().count) < world.size()) {
    if (world.is_root()) std::printf("skipped: there are fewer GPUs than ranks\n");
    return 0;
  }
  const auto comm = make_device_comm(world, world.rank(), std::chrono::seconds(2));
  DeviceArray<double> array(*comm, {1.0});
  comm->sum(array.data(), 1);
  array.values();
  if (!world.is_root()) std::this_thread::sleep_for(std::chrono::minutes(5));
  comm->sum(array.data(), 1);
  array.values();
  std::printf("the sum was done\n");
  return 0;
}
