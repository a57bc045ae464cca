// Tests that run on the CPU and, where there are GPUs, on these.
#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "dist/comm/gpu.h"
#include "dist/comm/mpi.h"

namespace headspan {

class OnDevice : public testing::TestWithParam<at::DeviceType> {
 protected:
  void SetUp() override {
    if (GetParam() == at::kCPU) return;
    const Comm world = Comm::duplicate(MPI_COMM_WORLD);
    const int fewest = world.min(visible_gpus().count);
    if (fewest == 0) GTEST_SKIP() << "there is no GPU";
    device_ = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(world.rank() % fewest));
  }

  at::Device device_ = at::kCPU;
};

inline std::string name_of_device(const testing::TestParamInfo<at::DeviceType>& info) {
  return info.param == at::kCPU ? "cpu" : "gpu";
}

}  // namespace headspan
