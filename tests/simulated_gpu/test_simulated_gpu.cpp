// That the simulated GPU refuses what a real one would: else tests on it could not fail.
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>

#include <ATen/ATen.h>
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dist/comm/gpu.h"

namespace {

/// Whether the host can read a byte there.
bool is_readable(const void* address) {
  int ends[2];
  if (::pipe(ends) != 0) return false;
  const bool readable = ::write(ends[1], address, 1) == 1;
  const int code = errno;
  ::close(ends[0]);
  ::close(ends[1]);
  if (!readable) {
    EXPECT_EQ(code, EFAULT);
  }
  return readable;
}

const auto kGpu = at::dtype(at::kDouble).device(at::kCUDA, 0);

TEST(SimulatedGpu, HidesItsMemoryFromTheHost) {
  const at::Tensor values = at::arange(4, kGpu);
  EXPECT_TRUE(values.is_cuda());
  EXPECT_FALSE(is_readable(values.data_ptr()));
  const at::Tensor host = values.to(at::kCPU);
  ASSERT_TRUE(is_readable(host.data_ptr()));
  EXPECT_EQ(host.data_ptr<double>()[3], 3);
}

TEST(SimulatedGpu, RefusesTensorsOfSeveralDevices) {
  const at::Tensor here = at::ones({3}), there = at::ones({3}, kGpu);
  EXPECT_THROW(at::add(here, there), c10::Error);
  EXPECT_THROW(at::mm(there.to(at::kFloat).view({3, 1}), here.view({1, 3})), c10::Error);
  EXPECT_THROW(there.index_select(0, at::tensor({1}, at::kLong)), c10::Error);
  EXPECT_EQ(at::add(there, 1).sum().item<double>(), 6);
  EXPECT_EQ(at::add(there, at::scalar_tensor(1, at::kDouble)).sum().item<double>(), 6);
}

TEST(SimulatedGpu, HasViewsThatWriteThrough) {
  const at::Tensor values = at::zeros({4, 6}, kGpu);
  values.view({2, 2, 6}).permute({2, 0, 1}).select(0, 3).narrow(1, 1, 1).fill_(5);
  EXPECT_EQ(values.sum().item<double>(), 10);
  EXPECT_EQ(values.narrow(0, 1, 1).narrow(1, 3, 1).item<double>(), 5);
}

TEST(SimulatedGpu, IsLateOnOtherStreams) {
  ::setenv("SIMULATED_GPU_LATENESS_MS", "60000", 1);  // as long as a test may take
  const at::Tensor from = at::ones({3}, kGpu), to = at::zeros({3}, kGpu);
  cudaStream_t stream = nullptr;
  cudaEvent_t copied = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&copied, cudaEventDisableTiming);

  cudaMemcpyAsync(to.data_ptr(), from.data_ptr(), 3 * sizeof(double), cudaMemcpyDeviceToDevice, stream);
  cudaEventRecord(copied, stream);
  EXPECT_EQ(to.sum().item<double>(), 0);
  EXPECT_EQ(cudaEventQuery(copied), cudaErrorNotReady);

  cudaStreamWaitEvent(cudaStreamLegacy, copied, 0);
  EXPECT_EQ(to.sum().item<double>(), 3);
  EXPECT_EQ(cudaEventQuery(copied), cudaSuccess);
  cudaEventDestroy(copied);
  cudaStreamDestroy(stream);
  ::unsetenv("SIMULATED_GPU_LATENESS_MS");
}

/// The second copy stands behind what the default stream has, which takes its time.
TEST(SimulatedGpu, HasStreamsThatWaitForEachOther) {
  const at::Tensor values = at::zeros({1}, kGpu), copy = at::zeros({1}, kGpu);
  double one = 1;
  cudaStream_t stream = nullptr;
  cudaEvent_t written = nullptr;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  cudaEventCreateWithFlags(&written, cudaEventDisableTiming);
  const auto pause = [](void*) { std::this_thread::sleep_for(std::chrono::seconds(1)); };

  cudaLaunchHostFunc(cudaStreamLegacy, pause, nullptr);
  cudaMemcpyAsync(values.data_ptr(), &one, sizeof one, cudaMemcpyHostToDevice, cudaStreamLegacy);
  cudaEventRecord(written, cudaStreamLegacy);
  EXPECT_EQ(cudaEventQuery(written), cudaErrorNotReady);
  cudaStreamWaitEvent(stream, written, 0);
  cudaMemcpyAsync(copy.data_ptr(), values.data_ptr(), sizeof one, cudaMemcpyDeviceToDevice, stream);
  cudaStreamSynchronize(stream);

  EXPECT_EQ(copy.item<double>(), 1);
  cudaEventDestroy(written);
  cudaStreamDestroy(stream);
}

TEST(SimulatedGpu, HasNoMoreThanItsMemory) {
  ::setenv("SIMULATED_GPU_BYTES", "268435456", 1);  // of which every page is written to
  const std::int64_t before = headspan::free_gpu_memory(0);
  const at::Tensor most = at::empty({before - (1 << 20)}, at::dtype(at::kByte).device(at::kCUDA, 0));
  EXPECT_EQ(headspan::free_gpu_memory(0), 1 << 20);
  EXPECT_THROW(at::empty({2 << 20}, most.options()), c10::OutOfMemoryError);
  ::unsetenv("SIMULATED_GPU_BYTES");
}

TEST(SimulatedGpu, FormsNoProductsThatAGpuRefuses) {
  const auto ones = [](std::int64_t rows, std::int64_t columns) {
    return at::ones({rows, columns}, at::dtype(at::kChar).device(at::kCUDA, 0));
  };
  EXPECT_EQ(at::_int_mm(ones(24, 16), ones(8, 16).t()).sum().item<std::int64_t>(), 24 * 8 * 16);
  EXPECT_THROW(at::_int_mm(ones(16, 16), ones(8, 16).t()), c10::Error);
  EXPECT_THROW(at::_int_mm(ones(24, 12), ones(8, 12).t()), c10::Error);
  EXPECT_THROW(at::_int_mm(ones(24, 16), ones(16, 8)), c10::Error);
}

}  // namespace
