// DeviceComm over NCCL, one rank for each GPU. MPI carries NCCL's id and every agreement; NCCL itself works
// without blocking (blocking = 0), so that no call of it can wait for a peer longer than `patience`: a call
// is polled until NCCL has taken it, and a Watchdog looks at what runs on the GPU and at NCCL's own threads.
//
// What NCCL asks for and is easy to miss: of a communicator that does not block, a call may return
// ncclInProgress, and nothing may be recorded behind it before ncclCommGetAsyncError says that it has been
// taken; that function finishes such a call, so two threads must not be in it at once.
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

constexpr std::chrono::seconds kUntilAbort{2};  // what MPI_Abort takes where nothing holds it up, and more

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

/// Whether the GPU has come past it.
bool is_done(const Event& event) {
  const cudaError_t code = cudaEventQuery(event.get());
  if (code == cudaErrorNotReady) {
    cudaGetLastError();  // no error to be found by whoever asks for the last one
    return false;
  }
  check_cuda(code, "a call on the GPU");
  return true;
}

bool is_accepted(ncclResult_t code) { return code == ncclSuccess || code == ncclInProgress; }

class NcclComm : public DeviceComm {
 public:
  /// Collective over comm. Connects nothing yet.
  NcclComm(const Comm& comm, int gpu, std::chrono::milliseconds patience)
      : DeviceComm(comm, gpu), patience_(patience) {}

  /// Where all ranks come here in good order, with what was begun done: waits for the others. Else it drops
  /// what is under way.
  ~NcclComm() override;

  /// Makes what is on this rank's GPU. Local.
  void prepare();
  /// Collective over NCCL, so not by MPI: a rank that throws leaves no other in a call of MPI.
  void connect(const ncclUniqueId& id);
  /// Local; behind a connect that succeeded everywhere.
  void start_watch();

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
  static constexpr Request kNothing = -1;  // of a call of nothing, which is none

  struct Call {
    Event begun, done;
  };

  Request begin_sum(void* values, std::int64_t count, ncclDataType_t type) const;
  Request run(const char* name, const std::function<ncclResult_t()>& call) const;
  ncclResult_t send_and_receive(const std::vector<Bytes<const char>>& send,
                                const std::vector<Bytes<char>>& receive) const;
  ncclResult_t settled(ncclResult_t code) const;
  void check(ncclResult_t code, const char* call) const;
  std::string text(ncclResult_t code) const;
  void make_room() const;
  const Call& call(std::int64_t number) const { return calls_[static_cast<std::size_t>(number % kCalls)]; }
  void count_done() const;
  Watchdog::Look look() const;
  [[noreturn]] void give_up(const std::string& what) const;

  /// Calls that may be under way at once. Few, so that the GPU's queue never fills up behind a peer that
  /// hangs: a full queue blocks the launching thread inside CUDA, and the watchdog with it.
  static constexpr std::int64_t kCalls = 16;
  static_assert(kCalls > kMostBegun);

  std::chrono::milliseconds patience_;
  Stream stream_;
  Event ready_;
  std::array<Call, kCalls> calls_;  // the number-th in place number % kCalls
  mutable std::mutex counts_;       // of these two
  mutable std::int64_t issued_ = 0, done_ = 0;
  mutable std::mutex nccl_;  // one thread at a time in the calls on comm_
  ncclComm_t comm_ = nullptr;
  std::unique_ptr<Watchdog> watch_;
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
  check(settled(ncclCommInitRankConfig(&comm_, size(), id, rank(), &config)), "ncclCommInitRankConfig");
}

void NcclComm::start_watch() {
  watch_ = std::make_unique<Watchdog>(
      patience_, [this] { return look(); }, [this](const std::string& what) { give_up(what); });
}

NcclComm::~NcclComm() {
  const bool in_order = watch_ && std::uncaught_exceptions() == 0;
  const auto begin = Clock::now();
  while (in_order && Clock::now() - begin < patience_) {
    const Watchdog::Look now = look();
    if (!now.trouble.empty() || now.finished == issued_) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  watch_.reset();
  if (comm_ == nullptr) return;
  if (in_order && done_ == issued_ && settled(ncclCommFinalize(comm_)) == ncclSuccess)
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
  const auto own = static_cast<std::size_t>(rank()), ranks = static_cast<std::size_t>(size());
  HS_ASSERT(send.size() == ranks && receive.size() == ranks && send[own].count == receive[own].count);
  return run("ncclSend and ncclRecv", [&] {
    if (send[own].count > 0)
      HS_CUDA(cudaMemcpyAsync(receive[own].data, send[own].data, static_cast<std::size_t>(send[own].count),
                              cudaMemcpyDeviceToDevice, stream_.get()));
    return send_and_receive(send, receive);
  });
}

/// All but the part that stays here, as one call.
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

/// Puts a call on the stream, behind what is on the default stream.
DeviceComm::Request NcclComm::run(const char* name, const std::function<ncclResult_t()>& nccl_call) const {
  try {
    HS_CUDA(cudaSetDevice(*gpu()));
    make_room();
    const Call& place = call(issued_);
    HS_CUDA(cudaEventRecord(ready_.get(), cudaStreamLegacy));
    HS_CUDA(cudaStreamWaitEvent(stream_.get(), ready_.get(), 0));
    HS_CUDA(cudaEventRecord(place.begun.get(), stream_.get()));
    ncclResult_t code = ncclSuccess;
    {
      const Lock lock(nccl_);
      code = nccl_call();
    }
    check(settled(code), name);
    HS_CUDA(cudaEventRecord(place.done.get(), stream_.get()));
    const Lock lock(counts_);
    return issued_++;
  } catch (const Error& e) {
    give_up(e.what());  // the peers are in the call already
  }
}

void NcclComm::wait(Request request) const {
  if (request == kNothing) return;
  HS_ASSERT(issued_ - request <= kCalls);  // else the event is another call's
  try {
    HS_CUDA(cudaSetDevice(*gpu()));
    HS_CUDA(cudaStreamWaitEvent(cudaStreamLegacy, call(request).done.get(), 0));
  } catch (const Error& e) {
    give_up(e.what());
  }
}

/// Waits until NCCL has taken a call, not until it is done.
ncclResult_t NcclComm::settled(ncclResult_t code) const {
  const auto begin = Clock::now();
  while (code == ncclInProgress) {
    const auto waited = Clock::now() - begin;
    if (waited > patience_) break;
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
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(patience_).count()) + " s";
  return std::string(ncclGetErrorString(code)) + " (" + ncclGetLastError(comm_) + ")";
}

void NcclComm::make_room() const {
  for (;;) {
    {
      const Lock lock(counts_);
      count_done();
      if (issued_ - done_ < kCalls) return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

/// With counts_ locked.
void NcclComm::count_done() const {
  while (done_ < issued_ && is_done(call(done_).done)) ++done_;
}

/// On the watchdog's thread, mostly.
Watchdog::Look NcclComm::look() const {
  Watchdog::Look now;
  try {
    HS_CUDA(cudaSetDevice(*gpu()));
    const Lock lock(counts_);
    count_done();
    now.finished = done_;
    now.running = done_ < issued_ && is_done(call(done_).begun);
  } catch (const Error& e) {
    now.trouble = e.what();
  }
  const std::unique_lock<std::mutex> lock(nccl_, std::try_to_lock);  // not where the other thread is stuck
  ncclResult_t code = ncclSuccess;
  if (lock && now.trouble.empty() && ncclCommGetAsyncError(comm_, &code) == ncclSuccess && !is_accepted(code))
    now.trouble = "NCCL: " + text(code);
  return now;
}

/// Ends the job. ncclCommAbort ends the kernels that wait for a peer, lest they hold up the end of this
/// process; but it lets the program's other thread go on with wrong values too, so it has to come last.
void NcclComm::give_up(const std::string& what) const {
  std::thread([comm = comm_] {
    std::this_thread::sleep_for(kUntilAbort);
    ncclCommAbort(comm);
  }).detach();
  abort_job("GPU " + std::to_string(*gpu()) + " of " + hostname() + ": " + what);
}

/// NCCL's own line of it comes late, on some ranks, and names no remedy. Collective over comm.
void refuse_shared_gpus(const Comm& comm, int gpu) {
  const std::vector<int> sharing = ranks_on_gpu(comm, gpu);
  int world_rank = 0;
  HS_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank));
  const std::vector<int> names = comm.all_gather(world_rank);
  agree(comm, [&] {
    if (sharing.size() > 1) {
      const int other = sharing[0] == comm.rank() ? sharing[1] : sharing[0];
      throw AgreedError("ranks " + std::to_string(world_rank) + " and " +
                            std::to_string(names[static_cast<std::size_t>(other)]) + " would share GPU " +
                            gpu_bus(gpu) + " of " + hostname() +
                            ", and NCCL takes one rank for each GPU: start no more ranks on a node than it "
                            "has GPUs, let the launcher show each rank one of its own, or set "
                            "run.tensor_parallel = 1",
                        1);
    }
  });
}

}  // namespace

bool have_own_gpus(const Comm& comm, int gpu) {
  return comm.max(static_cast<int>(ranks_on_gpu(comm, gpu).size())) == 1;
}

std::unique_ptr<DeviceComm> make_nccl_comm(const Comm& comm, int gpu, std::chrono::milliseconds patience) {
  refuse_shared_gpus(comm, gpu);
  auto result = std::make_unique<NcclComm>(comm, gpu, patience);
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
  result->start_watch();
  return result;
}

}  // namespace headspan
