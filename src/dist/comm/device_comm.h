// DeviceComm: collectives on buffers in the memory in which a rank computes. One interface, two
// implementations: over MPI for host memory (device_comm_mpi.cpp), and over NCCL for the memory of each
// rank's GPU (device_comm_nccl.cpp, in programs built for GPUs). Not for data that is on the host anyway: use
// `host()`.
//
// On GPUs a call returns before it is done, and never waits for the GPU. It runs on a CUDA stream of the
// communicator, after everything that was on the default stream at the time of the call; everything that is
// put on the default stream later runs after it. Work on the default stream, such as ATen's, may therefore
// read and free the buffers right away. After a begin_* call the default stream runs concurrently until
// `wait`. With buffers in host memory a call returns when it is done.
//
// Every function except `wait` and the accessors is collective: all ranks call it in the same order with
// matching counts. Counts may be 0 and may exceed 2^31. Errors of MPI throw Error. On GPUs an error after the
// set-up, even of a call that has returned, prints `rank R: ...` and ends the job. So does a call that has
// begun and is not done after `timeout`: no rank waits for ever for one that hangs or does not call.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "dist/comm/mpi.h"

namespace headspan {

/// Longer than the slowest step in which one rank may lag behind (writing its state, reading its weights),
/// and short enough that a job with a dead rank does not waste its time limit.
constexpr std::chrono::minutes kCollectiveTimeout{5};

class DeviceComm {
 public:
  virtual ~DeviceComm() = default;
  DeviceComm(const DeviceComm&) = delete;
  DeviceComm& operator=(const DeviceComm&) = delete;

  /// The same ranks over MPI, for data in host memory.
  const Comm& host() const { return host_; }
  int rank() const { return host_.rank(); }
  int size() const { return host_.size(); }
  /// Returns the GPU in whose memory the buffers are; nothing if they are in host memory.
  std::optional<int> gpu() const { return gpu_; }

  /// A call that has begun.
  using Request = std::int64_t;

  /// Replaces values: [count] by their sums over the ranks, bit-identical on all ranks. On GPUs NCCL chooses
  /// the order of summation, which depends on the count, the ranks and how they are connected.
  void sum(double* values, std::int64_t count) const { wait(begin_sum(values, count)); }
  void sum(float* values, std::int64_t count) const { wait(begin_sum(values, count)); }
  virtual Request begin_sum(double* values, std::int64_t count) const = 0;
  virtual Request begin_sum(float* values, std::int64_t count) const = 0;

  /// Sends data: [bytes] from `root` to all ranks.
  virtual void broadcast(void* data, std::int64_t bytes, int root) const = 0;

  /// Gathers send: [bytes] of all ranks in receive: [size, bytes], which does not overlap `send`.
  virtual void all_gather(const void* send, std::int64_t bytes, void* receive) const = 0;

  /// Sends row r of send: [size, bytes] to rank r, and receives row r of receive: [size, bytes] from it. The
  /// two do not overlap.
  void exchange(const void* send, std::int64_t bytes, void* receive) const {
    exchange(strided_chunks(static_cast<const char*>(send), bytes, bytes, size()),
             strided_chunks(static_cast<char*>(receive), bytes, bytes, size()));
  }

  /// Sends send[r] to rank r, and receives into receive[r] what rank r sends here, which must be as long. The
  /// receive buffers overlap nothing.
  void exchange(const std::vector<Bytes<const char>>& send, const std::vector<Bytes<char>>& receive) const {
    wait(begin_exchange(send, receive));
  }
  virtual Request begin_exchange(const std::vector<Bytes<const char>>& send,
                                 const std::vector<Bytes<char>>& receive) const = 0;

  /// Makes later work on the default stream run after the call. Its buffers must not be touched before. At
  /// most kMaxPending calls may have been made since. Local.
  virtual void wait(Request request) const = 0;
  static constexpr int kMaxPending = 8;

 protected:
  /// Collective over comm.
  DeviceComm(const Comm& comm, std::optional<int> gpu) : host_(Comm::duplicate(comm.get())), gpu_(gpu) {}

 private:
  Comm host_;
  std::optional<int> gpu_;
};

/// Makes a DeviceComm over the ranks of `comm`, which is duplicated. `gpu` is this rank's GPU, among those
/// that it sees; all ranks or none give one, and no two may share one. Throws AgreedError if they do, if NCCL
/// cannot be set up within `timeout`, and in a program built without GPUs. Collective over comm.
std::unique_ptr<DeviceComm> make_device_comm(const Comm& comm, std::optional<int> gpu,
                                             std::chrono::milliseconds timeout = kCollectiveTimeout);

/// Returns whether no two ranks of `comm` share a GPU, as NCCL requires. `gpu` as for make_device_comm.
/// Throws AgreedError if there is no such GPU. Collective over comm.
bool have_separate_gpus(const Comm& comm, int gpu);

/// Makes a DeviceComm over NCCL; called by make_device_comm.
std::unique_ptr<DeviceComm> make_nccl_comm(const Comm& comm, int gpu, std::chrono::milliseconds timeout);

}  // namespace headspan
