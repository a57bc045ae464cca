// DeviceComm over MPI, and the choice between it and NCCL.
#include "dist/comm/device_comm.h"

namespace headspan {
namespace {

class MpiDeviceComm : public DeviceComm {
 public:
  explicit MpiDeviceComm(const Comm& comm) : DeviceComm(comm, std::nullopt) {}

  Request begin_sum(double* values, std::int64_t count) const override { return sum_now(values, count); }
  Request begin_sum(float* values, std::int64_t count) const override { return sum_now(values, count); }
  void broadcast(void* data, std::int64_t bytes, int root) const override {
    host().broadcast(static_cast<char*>(data), bytes, root);
  }
  void all_gather(const void* send, std::int64_t bytes, void* receive) const override {
    host().all_gather(static_cast<const char*>(send), bytes, static_cast<char*>(receive));
  }
  Request begin_exchange(const std::vector<Bytes<const char>>& send,
                         const std::vector<Bytes<char>>& receive) const override {
    host().exchange(send, receive);
    return 0;
  }
  void wait(Request) const override {}

 private:
  template <class T>
  Request sum_now(T* values, std::int64_t count) const {
    host().sum(values, count);
    return 0;
  }
};

}  // namespace

std::unique_ptr<DeviceComm> make_device_comm(const Comm& comm, std::optional<int> gpu,
                                             std::chrono::milliseconds timeout) {
  if (gpu) return make_nccl_comm(comm, *gpu, timeout);
  return std::make_unique<MpiDeviceComm>(comm);
}

}  // namespace headspan
