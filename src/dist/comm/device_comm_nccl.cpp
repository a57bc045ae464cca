// DeviceComm over NCCL, one rank for each GPU. NCCL's id and every agreement go over MPI. The NCCL
// communicator is non-blocking (blocking = 0), so that no call can wait for a peer longer than `timeout`: a
// call is polled until NCCL has accepted it, and a Watchdog polls the work on the GPU and NCCL's own threads.
//
// A rule of NCCL that is easy to miss: a call on a non-blocking communicator may return ncclInProgress. Then
// nothing may be recorded after it on the stream before ncclCommGetAsyncError reports that it has been
// accepted. That function completes such a call, so two threads must not be in it at once.
#include <array>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <type_traits>

#include <cuda_runtime_api.h>
#include <nccl.h>

#include "base/process/watchdog.h"
#include "base/provenance.h"
#include "dist/comm/agreement.h"
#include "dist/comm/device_comm.h"
#include "dist/comm/gpu.h"

namespace headspan {
namespace {

using Clock = std::chrono::steady_clock;
using Lock = std::lock_guard<std::mutex>;

constexpr std::chrono::seconds kUntilAbort{2};  // longer than MPI_Abort takes if nothing blocks it

void check_cuda(cudaError_t code, const char* call) {
  if (code != cudaSuccess) throw Error(std::string("CUDA: ") + cudaGetErrorString(code) + " in " + call);
}

#define HS_CUDA(call) check_cuda((call), #call)

struct DestroyStream {
  void operator()(cudaStream_t stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(cudaEvent_t event) const { cudaEventDestroy(event); }
};
using Stream = std::unique_ptr<std::remove_pointer_t<cudaStream_t>, DestroyStream>;
using Event = std::unique_ptr<std::remove_pointer_t<cudaEvent_t>, DestroyEvent>;

Event make_event() {
  cudaEvent_t event = nullptr;
  HS_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event);
}

/// Returns whether the GPU has passed the event.
bool is_done(const Event& event) {
  const cudaError_t code = cudaEventQuery(event.get());
  if (code == cudaErrorNotReady) {
    cudaGetLastError();  // clears it: it is not an error
    return false;
  }
  check_cuda(code, "a call on the GPU");
  return true;
}

bool is_accepted(ncclResult_t code) { return code == ncclSuccess || code == ncclInProgress; }

class NcclComm : public DeviceComm {
 public:
  /// Connects nothing yet. Collective over comm.
  NcclComm(const Comm& comm, int gpu, std::chrono::milliseconds timeout)
      : DeviceComm(comm, gpu), timeout_(timeout) {}

  /// Waits for all calls and for the other ranks; during stack unwinding it aborts the communicator instead.
  ~NcclComm() override;

  /// Creates the CUDA stream and the events. Local.
  void prepare();
  /// Collective over NCCL only: if a rank throws, no other is left waiting in a call of MPI.
  void connect(const ncclUniqueId& id);
  /// Call it after connect has succeeded on all ranks. Local.
  void start_watchdog();

  Request begin_sum(double* values, std::int64_t count) const override {
    return begin_sum(values, count, ncclFloat64);
  }
  Request begin_sum(float* values, std::int64_t count) const override {
    return begin_sum(values, count, ncclFloat32);
  }
  void broadcast(void* data, std::int64_t bytes, int root) const override;
  void all_gather(const void* send, std::int64_t bytes, void* receive) const override;
  Request begin_exchange(const std::vector<Bytes<const char>>& send,
                         const std::vector<Bytes<char>>& receive) const override;
  void wait(Request request) const override;

 private:
  static constexpr Request kNothing = -1;  // a call with count 0, which is not made

  struct Call {
    Event begun, done;
  };

  Request begin_sum(void* values, std::int64_t count, ncclDataType_t type) const;
  Request run(const char* name, const std::function<ncclResult_t()>& call) const;
  ncclResult_t send_and_receive(const std::vector<Bytes<const char>>& send,
                                const std::vector<Bytes<char>>& receive) const;
  ncclResult_t await_acceptance(ncclResult_t code) const;
  void check(ncclResult_t code, const char* call) const;
  std::string text(ncclResult_t code) const;
  void wait_for_free_slot() const;
  const Call& call(std::int64_t number) const { return calls_[static_cast<std::size_t>(number % kCalls)]; }
  void count_done() const;
  Watchdog::Status poll() const;
  [[noreturn]] void fail(const std::string& what) const;

  /// Calls that may be under way at once. Few, so that the GPU's queue never fills up while a peer hangs: a
  /// full queue blocks the launching thread inside CUDA, and the watchdog with it.
  static constexpr std::int64_t kCalls = 16;
  static_assert(kCalls > kMaxPending);

  std::chrono::milliseconds timeout_;
  Stream stream_;
  Event ready_;
  std::array<Call, kCalls> calls_;  // a ring: call i in slot i % kCalls
  mutable std::mutex counts_;       // guards the next two
  mutable std::int64_t issued_ = 0, done_ = 0;
  mutable std::mutex nccl_;  // one thread at a time in the calls on comm_
  ncclComm_t comm_ = nullptr;
  std::unique_ptr<Watchdog> watchdog_;
};

void NcclComm::prepare() {
  HS_CUDA(cudaSetDevice(*gpu()));
  cudaStream_t stream = nullptr;
  HS_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_.reset(stream);
  ready_ = make_event();
  for (Call& call : calls_) call = {make_event(), make_event()};
}

void NcclComm::connect(const ncclUniqueId& id) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  check(await_acceptance(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config)),
        "ncclCommInitRankConfig");
}

void NcclComm::start_watchdog() {
  watchdog_ = std::make_unique<Watchdog>(
      timeout_, [this] { return poll(); }, [this](const std::string& what) { fail(what); });
}

NcclComm::~NcclComm() {
  const bool in_order = watchdog_ && std::uncaught_exceptions() == 0;
  const auto begin = Clock::now();
  while (in_order && Clock::now() - begin < timeout_) {
    const Watchdog::Status now = poll();
    if (!now.error.empty() || now.finished == issued_) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  watchdog_.reset();
  if (comm_ == nullptr) return;
  if (in_order && done_ == issued_ && await_acceptance(ncclCommFinalize(comm_)) == ncclSuccess)
    ncclCommDestroy(comm_);
  else
    ncclCommAbort(comm_);
}

void NcclComm::broadcast(void* data, std::int64_t bytes, int root) const {
  if (bytes == 0) return;
  wait(run("ncclBroadcast", [&] {
    return ncclBroadcast(data, data, static_cast<std::size_t>(bytes), ncclInt8, root, comm_, stream_.get());
  }));
}

void NcclComm::all_gather(const void* send, std::int64_t bytes, void* receive) const {
  if (bytes == 0) return;
  wait(run("ncclAllGather", [&] {
    return ncclAllGather(send, receive, static_cast<std::size_t>(bytes), ncclInt8, comm_, stream_.get());
  }));
}

DeviceComm::Request NcclComm::begin_sum(void* values, std::int64_t count, ncclDataType_t type) const {
  if (count == 0) return kNothing;
  return run("ncclAllReduce", [&] {
    return ncclAllReduce(values, values, static_cast<std::size_t>(count), type, ncclSum, comm_,
                         stream_.get());
  });
}

DeviceComm::Request NcclComm::begin_exchange(const std::vector<Bytes<const char>>& send,
                                             const std::vector<Bytes<char>>& receive) const {
  const auto me = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  HS_ASSERT(send.size() == ranks && receive.size() == ranks && send[me].count == receive[me].count);
  return run("ncclSend and ncclRecv", [&] {
    if (send[me].count > 0)
      HS_CUDA(cudaMemcpyAsync(receive[me].data, send[me].data, static_cast<std::size_t>(send[me].count),
                              cudaMemcpyDeviceToDevice, stream_.get()));
    return send_and_receive(send, receive);
  });
}

/// Exchanges with all other ranks in one group call.
ncclResult_t NcclComm::send_and_receive(const std::vector<Bytes<const char>>& send,
                                        const std::vector<Bytes<char>>& receive) const {
  ncclResult_t code = ncclGroupStart();
  for (int r = 0; r < size(); ++r) {
    const auto& from = send[static_cast<std::size_t>(r)];
    const auto& to = receive[static_cast<std::size_t>(r)];
    if (r != rank() && from.count > 0 && is_accepted(code))
      code = ncclSend(from.data, static_cast<std::size_t>(from.count), ncclInt8, r, comm_, stream_.get());
    if (r != rank() && to.count > 0 && is_accepted(code))
      code = ncclRecv(to.data, static_cast<std::size_t>(to.count), ncclInt8, r, comm_, stream_.get());
  }
  const ncclResult_t end = ncclGroupEnd();
  return is_accepted(code) ? end : code;
}

/// Puts a call on the stream, after everything that is on the default stream.
DeviceComm::Request NcclComm::run(const char* name, const std::function<ncclResult_t()>& nccl_call) const {
  try {
    HS_CUDA(cudaSetDevice(*gpu()));
    wait_for_free_slot();
    const Call& slot = call(issued_);
    HS_CUDA(cudaEventRecord(ready_.get(), cudaStreamLegacy));
    HS_CUDA(cudaStreamWaitEvent(stream_.get(), ready_.get(), 0));
    HS_CUDA(cudaEventRecord(slot.begun.get(), stream_.get()));
    ncclResult_t code = ncclSuccess;
    {
      const Lock lock(nccl_);
      code = nccl_call();
    }
    check(await_acceptance(code), name);
    HS_CUDA(cudaEventRecord(slot.done.get(), stream_.get()));
    const Lock lock(counts_);
    return issued_++;
  } catch (const Error& e) {
    fail(e.what());  // the peers are already in the call
  }
}

void NcclComm::wait(Request request) const {
  if (request == kNothing) return;
  HS_ASSERT(issued_ - request <= kCalls);  // otherwise the event belongs to another call
  try {
    HS_CUDA(cudaSetDevice(*gpu()));
    HS_CUDA(cudaStreamWaitEvent(cudaStreamLegacy, call(request).done.get(), 0));
  } catch (const Error& e) {
    fail(e.what());
  }
}

/// Waits until NCCL has accepted a call, not until the call is done.
ncclResult_t NcclComm::await_acceptance(ncclResult_t code) const {
  const auto begin = Clock::now();
  while (code == ncclInProgress) {
    const auto waited = Clock::now() - begin;
    if (waited > timeout_) break;
    if (waited < std::chrono::milliseconds(1))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Lock lock(nccl_);
    const ncclResult_t asked = ncclCommGetAsyncError(comm_, &code);
    if (asked != ncclSuccess) return asked;
  }
  return code;
}

void NcclComm::check(ncclResult_t code, const char* call) const {
  if (code != ncclSuccess) throw Error("NCCL: " + text(code) + " in " + call);
}

std::string NcclComm::text(ncclResult_t code) const {
  if (code == ncclInProgress)
    return "nothing has come of it for " +
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(timeout_).count()) + " s";
  return std::string(ncclGetErrorString(code)) + " (" + ncclGetLastError(comm_) + ")";
}

void NcclComm::wait_for_free_slot() const {
  for (;;) {
    {
      const Lock lock(counts_);
      count_done();
      if (issued_ - done_ < kCalls) return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

/// Call it with counts_ locked.
void NcclComm::count_done() const {
  while (done_ < issued_ && is_done(call(done_).done)) ++done_;
}

/// Called on the watchdog's thread and by the destructor.
Watchdog::Status NcclComm::poll() const {
  Watchdog::Status now;
  try {
    HS_CUDA(cudaSetDevice(*gpu()));
    const Lock lock(counts_);
    count_done();
    now.finished = done_;
    now.running = done_ < issued_ && is_done(call(done_).begun);
  } catch (const Error& e) {
    now.error = e.what();
  }
  const std::unique_lock<std::mutex> lock(nccl_, std::try_to_lock);  // the other thread may be stuck
  ncclResult_t code = ncclSuccess;
  if (lock && now.error.empty() && ncclCommGetAsyncError(comm_, &code) == ncclSuccess && !is_accepted(code))
    now.error = "NCCL: " + text(code);
  return now;
}

/// Ends the job. ncclCommAbort ends the kernels that wait for a peer, which would otherwise keep this process
/// alive. It comes last, because it also lets the program's other thread continue with wrong values.
void NcclComm::fail(const std::string& what) const {
  std::thread([comm = comm_] {
    std::this_thread::sleep_for(kUntilAbort);
    ncclCommAbort(comm);
  }).detach();
  abort_job("GPU " + std::to_string(*gpu()) + " of " + hostname() + ": " + what);
}

/// Throws AgreedError if ranks share a GPU: NCCL's own message comes late, on some ranks, and names no
/// remedy. Collective over comm.
void refuse_shared_gpus(const Comm& comm, int gpu) {
  const std::vector<int> sharing = ranks_on_gpu(comm, gpu);
  const std::vector<int> world_ranks = comm.all_gather(world_rank());
  agree(comm, [&] {
    if (sharing.size() > 1) {
      const int other = sharing[0] == comm.rank() ? sharing[1] : sharing[0];
      throw AgreedError("ranks " + std::to_string(world_rank()) + " and " +
                            std::to_string(world_ranks[static_cast<std::size_t>(other)]) +
                            " would share GPU " + gpu_bus(gpu) + " of " + hostname() +
                            ", and NCCL takes one rank for each GPU: start no more ranks on a node than it "
                            "has GPUs, let the launcher show each rank one of its own, or set "
                            "run.tensor_parallel = 1",
                        1);
    }
  });
}

}  // namespace

bool have_separate_gpus(const Comm& comm, int gpu) {
  return comm.max(static_cast<int>(ranks_on_gpu(comm, gpu).size())) == 1;
}

std::unique_ptr<DeviceComm> make_nccl_comm(const Comm& comm, int gpu, std::chrono::milliseconds timeout) {
  refuse_shared_gpus(comm, gpu);
  auto result = std::make_unique<NcclComm>(comm, gpu, timeout);
  ncclUniqueId id{};
  agree(comm, [&] {
    result->prepare();
    if (comm.is_root())
      if (const ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess)
        throw Error(std::string("NCCL: ") + ncclGetErrorString(code) + " in ncclGetUniqueId (" +
                    ncclGetLastError(nullptr) + ")");
  });
  comm.broadcast(id.internal, NCCL_UNIQUE_ID_BYTES, 0);
  agree(comm, [&] { result->connect(id); });
  result->start_watchdog();
  return result;
}

}  // namespace headspan
