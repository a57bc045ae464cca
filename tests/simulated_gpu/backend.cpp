#include "simulated_gpu/backend.h"

#include <cstring>
#include <utility>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "simulated_gpu/simulated_gpu.h"
#include "simulated_gpu/streams.h"

namespace simulated {
namespace {

thread_local c10::StreamId current_stream = 0;  // the default one

c10::Device current_device() { return {c10::kCUDA, static_cast<c10::DeviceIndex>(current_gpu())}; }

/// Behind what is on the default stream.
void give_back(void* address) {
  const Mark before = mark(default_stream());
  if (is_past(before))
    release(address);
  else
    put(default_stream(), [address] { release(address); });
}

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes == 0) return {nullptr, current_device()};
    void* data = simulated::allocate(bytes);
    if (data == nullptr) {
      wait_for(default_stream());  // what is to be given back there
      data = simulated::allocate(bytes);
    }
    TORCH_CHECK_WITH(OutOfMemoryError, data != nullptr, "simulated GPU: out of memory. Tried to allocate ",
                     bytes, " bytes; ", free_bytes(), " are free");
    return {data, data, &give_back, current_device()};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    wait_for_current_stream();
    std::memcpy(to_host(to), to_host(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override { return {}; }
  void resetAccumulatedStats(c10::DeviceIndex) override {}
  void resetPeakStats(c10::DeviceIndex) override {}
};

/// Of two streams for each GPU.
class Guard final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return c10::kCUDA; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return current_device(); }
  void setDevice(c10::Device device) const override {
    TORCH_CHECK(!device.has_index() || set_current_gpu(device.index()), "simulated GPU: there is no ",
                device);
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.has_index()) set_current_gpu(device.index());
  }
  c10::Stream getStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, current_stream);
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return c10::Stream(c10::Stream::UNSAFE, device, 1);
  }
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return c10::Stream(c10::Stream::UNSAFE, stream.device(), std::exchange(current_stream, stream.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return static_cast<c10::DeviceIndex>(gpu_count());
  }
  bool queryStream(const c10::Stream& stream) const override {
    return stream.id() != 0 || is_past(mark(default_stream()));
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    if (stream.id() == 0) wait_for(default_stream());
  }
};

/// Host memory as any other.
class PinnedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override { return c10::GetCPUAllocator()->allocate(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }
};

Allocator memory;
PinnedAllocator pinned_memory;
const bool registered = [] {
  c10::SetAllocator(c10::kCUDA, &memory);
  return true;
}();

}  // namespace

c10::Allocator& device_allocator() { return memory; }

void wait_for_current_stream() {
  if (current_stream == 0) wait_for(default_stream());
}

/// LibTorch finds it by this name.
class CUDAHooks final : public at::CUDAHooksInterface {
 public:
  explicit CUDAHooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return gpu_count(); }
  at::DeviceIndex deviceCount() const override { return static_cast<at::DeviceIndex>(gpu_count()); }
  at::DeviceIndex current_device() const override { return static_cast<at::DeviceIndex>(current_gpu()); }
  at::DeviceIndex getCurrentDevice() const override { return current_device(); }
  at::Allocator* getPinnedMemoryAllocator() const override { return &pinned_memory; }
  const at::Generator& getDefaultGenerator(at::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};

using at::CUDAHooksRegistry;
using at::RegistererCUDAHooksRegistry;
REGISTER_CUDA_HOOKS(CUDAHooks)
C10_REGISTER_GUARD_IMPL(CUDA, Guard)

}  // namespace simulated
