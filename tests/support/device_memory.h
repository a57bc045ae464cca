// Memory where the buffers of a DeviceComm lie, for tests that know neither CUDA nor LibTorch. Two
// implementations: device_memory_cuda.cpp in programs built for GPUs, device_memory_host.cpp in others.
#pragma once

#include <cstring>
#include <vector>

#include "dist/comm/device_comm.h"

namespace headspan {

void* allocate_on_gpu(int gpu, std::size_t bytes);
void free_on_gpu(int gpu, void* data);
/// Behind all that the default stream has; the first waits for it.
void read_gpu(int gpu, void* host, const void* data, std::size_t bytes);
void write_gpu(int gpu, void* data, const void* host, std::size_t bytes);
/// As write_gpu, but returns at once, and the GPU writes a tenth of a second later. `host` must stay.
void write_gpu_late(int gpu, void* data, const void* host, std::size_t bytes);

/// An array in the memory of the GPU of `comm`, or in host memory where it has none. Not for bool.
template <class T>
class DeviceArray {
 public:
  DeviceArray(const DeviceComm& comm, const std::vector<T>& values) : gpu_(comm.gpu()), host_(values) {
    if (!gpu_) return;
    on_gpu_ = static_cast<T*>(allocate_on_gpu(*gpu_, bytes() + 1));
    write_gpu(*gpu_, on_gpu_, host_.data(), bytes());
  }
  ~DeviceArray() {
    if (gpu_) free_on_gpu(*gpu_, on_gpu_);
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return gpu_ ? on_gpu_ : host_.data(); }

  std::vector<T> values() const {
    if (!gpu_) return host_;
    std::vector<T> result(host_.size());
    read_gpu(*gpu_, result.data(), on_gpu_, bytes());
    return result;
  }

  /// `values`, as many as there are, come a while after this call has returned: behind the default stream.
  void write_late(const std::vector<T>& values) {
    host_ = values;
    if (gpu_) write_gpu_late(*gpu_, on_gpu_, host_.data(), bytes());
  }

 private:
  std::size_t bytes() const { return host_.size() * sizeof(T); }

  std::optional<int> gpu_;
  std::vector<T> host_;
  T* on_gpu_ = nullptr;
};

}  // namespace headspan
