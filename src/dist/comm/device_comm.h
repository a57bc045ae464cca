// Collectives on buffers that lie where a rank computes. One interface, two implementations: for buffers in
// host memory over MPI (device_comm_mpi.cpp), and for buffers in the memory of each rank's GPU over NCCL
// (device_comm_nccl.cpp, in programs built for GPUs). Not for what is on the host anyway: that goes over
// `host()`.
//
// On GPUs a call returns before it is done, and no call waits for the GPU. What it does is ordered by the GPU
// alone: behind all that was put on the device's default stream before the call, on a stream of the
// communicator's own, and all that is put on the default stream afterwards comes behind it. So whatever works
// on the default stream, as ATen does, may read and free the buffers right away. Behind a call that begins
// something (begin_*) the default stream goes on beside it, until `wait`. With buffers in host memory a call
// returns when it is done.
//
// Every function but `wait` and the small ones without arguments is collective over the ranks of the
// communicator: all call, in the same order, with counts that match. Counts may be 0 and may exceed 2^31.
// Errors of MPI are Error. On GPUs an error behind the set-up, also one of a call that has returned, prints
// `rank R: ...` and ends the job, and so does a call that has begun and is not done after `patience`: a rank
// that hangs, or that does not call, leaves none waiting.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "dist/comm/mpi.h"

namespace headspan {

/// Long enough for the slowest thing that one rank may do while others are ahead (writing its state, reading
/// its weights), short enough for a job with a dead rank not to use up its time.
constexpr std::chrono::minutes kPatience{5};

class DeviceComm {
 public:
  virtual ~DeviceComm() = default;
  DeviceComm(const DeviceComm&) = delete;
  DeviceComm& operator=(const DeviceComm&) = delete;

  /// The same ranks over MPI, for what lies in host memory.
  const Comm& host() const { return host_; }
  int rank() const { return host_.rank(); }
  int size() const { return host_.size(); }
  /// The GPU in whose memory the buffers lie; none: in host memory.
  std::optional<int> gpu() const { return gpu_; }

  /// What was begun.
  using Request = std::int64_t;

  /// In place the sum of `values`: [count] over the ranks. Every rank gets the same bits; on GPUs in which
  /// order is summed is NCCL's choice, which depends on the count, the ranks and how they are connected.
  void sum(double* values, std::int64_t count) const { wait(begin_sum(values, count)); }
  void sum(float* values, std::int64_t count) const { wait(begin_sum(values, count)); }
  virtual Request begin_sum(double* values, std::int64_t count) const = 0;
  virtual Request begin_sum(float* values, std::int64_t count) const = 0;

  /// `bytes` of `data` from `root` to all.
  virtual void broadcast(void* data, std::int64_t bytes, int root) const = 0;

  /// `bytes` of `send` of each rank, in rank order: `receive` is [size, bytes] and does not overlap `send`.
  virtual void all_gather(const void* send, std::int64_t bytes, void* receive) const = 0;

  /// send: [size, bytes], of which the r-th part goes to rank r; what rank r sent here becomes the r-th part
  /// of `receive`, which does not overlap `send`.
  void exchange(const void* send, std::int64_t bytes, void* receive) const;

  /// send[r] goes to rank r, and what rank r sends here into receive[r], which is as long as rank r's
  /// send[rank()]. What is received overlaps nothing.
  void exchange(const std::vector<Bytes<const char>>& send, const std::vector<Bytes<char>>& receive) const {
    wait(begin_exchange(send, receive));
  }
  virtual Request begin_exchange(const std::vector<Bytes<const char>>& send,
                                 const std::vector<Bytes<char>>& receive) const = 0;

  /// What comes on the default stream stands behind what was begun, whose buffers are to be left alone until
  /// then. At most kMostBegun later calls may have been made since. Local.
  virtual void wait(Request request) const = 0;
  static constexpr int kMostBegun = 8;

 protected:
  /// Collective over comm.
  DeviceComm(const Comm& comm, std::optional<int> gpu) : host_(Comm::duplicate(comm.get())), gpu_(gpu) {}

 private:
  Comm host_;
  std::optional<int> gpu_;
};

/// For the ranks of `comm`, which is duplicated. `gpu`: the GPU of this rank, among those that it sees; given
/// by all ranks or by none, and no two ranks may share one. Throws AgreedError where they do, where NCCL
/// cannot be set up within `patience`, and in a program built without GPUs. Collective over comm.
std::unique_ptr<DeviceComm> make_device_comm(const Comm& comm, std::optional<int> gpu,
                                             std::chrono::milliseconds patience = kPatience);

/// Whether every rank of `comm` has a GPU of its own: what NCCL asks for. `gpu` as for make_device_comm.
/// Throws AgreedError where there is no such GPU. Collective over comm.
bool have_own_gpus(const Comm& comm, int gpu);

/// The one over NCCL; make_device_comm is what to call.
std::unique_ptr<DeviceComm> make_nccl_comm(const Comm& comm, int gpu, std::chrono::milliseconds patience);

}  // namespace headspan
