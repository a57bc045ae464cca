// What headspan calls of NCCL, between processes of one machine that may read each other's memory. A call is
// a task of its stream and waits for its peers there; where ranks differ in their calls or sizes, they end.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <nccl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include "simulated_gpu/runtime.h"
#include "simulated_gpu/simulated_gpu.h"

namespace {

constexpr std::size_t kMostRanks = 16;

/// What a rank shows the others; of a message: to one of them.
struct Offer {
  std::atomic<int> open;  // 0 in new memory
  const void* data;
  std::size_t bytes;
};

/// In memory that all ranks of a communicator map.
struct Shared {
  std::atomic<int> arrived;  // at calls of `meet`, in all
  std::array<pid_t, kMostRanks> process;
  std::array<Offer, kMostRanks> all;                               // of collective calls
  std::array<std::array<Offer, kMostRanks>, kMostRanks> messages;  // by sender and receiver
};

struct Message {
  std::size_t peer;
  void* data;
  std::size_t bytes;
};

}  // namespace

struct ncclComm {
  std::size_t rank, size;
  Shared* shared;
};

namespace {

/// Messages that are one call.
struct Group {
  ncclComm* comm = nullptr;
  cudaStream_t stream = nullptr;
  std::vector<Message> sends, receives;
};

thread_local int open_groups = 0;
thread_local Group group;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "simulated NCCL: %s\n", what.c_str());
  std::abort();
}

template <class Condition>
void wait_until(const Condition& condition) {
  while (!condition()) std::this_thread::yield();
}

/// Returns when all ranks are here.
void meet(const ncclComm& comm) {
  Shared& shared = *comm.shared;
  const int size = static_cast<int>(comm.size), turn = shared.arrived.fetch_add(1) / size;
  wait_until([&] { return shared.arrived.load() / size > turn; });
}

std::size_t bytes_of(std::size_t count, ncclDataType_t type) {
  if (type == ncclFloat64) return 8 * count;
  if (type == ncclFloat32) return 4 * count;
  if (type == ncclInt8) return count;
  fail("this type is not simulated");
}

/// Reads another process' memory.
void read_from(const ncclComm& comm, std::size_t rank, const void* from, void* to, std::size_t bytes) {
  auto* here = static_cast<char*>(to);
  auto* there = static_cast<char*>(const_cast<void*>(from));
  while (bytes > 0) {
    const iovec local{here, bytes}, remote{there, bytes};
    const ssize_t got = process_vm_readv(comm.shared->process[rank], &local, 1, &remote, 1, 0);
    if (got <= 0) fail(std::string("process_vm_readv: ") + std::strerror(errno));
    here += got, there += got, bytes -= static_cast<std::size_t>(got);
  }
}

/// Shows the others memory of this rank. Ends with `meet` behind the last use.
void offer(const ncclComm& comm, const void* data, std::size_t bytes) {
  Offer& own = comm.shared->all[comm.rank];
  own.data = simulated::to_host(data);
  own.bytes = bytes;
  meet(comm);
}

void read_offer(const ncclComm& comm, std::size_t rank, void* to, std::size_t bytes) {
  const Offer& theirs = comm.shared->all[rank];
  if (theirs.bytes != bytes) fail("ranks differ in the size of a call");
  read_from(comm, rank, theirs.data, to, bytes);
}

template <class T>
void add_up(const std::vector<std::vector<char>>& parts, void* out, std::size_t count) {
  auto* const sums = static_cast<T*>(out);
  for (std::size_t i = 0; i < count; ++i) {
    sums[i] = 0;
    for (const std::vector<char>& part : parts) sums[i] += reinterpret_cast<const T*>(part.data())[i];
  }
}

/// All messages of a group: opened to their receivers, who close them.
void exchange(const Group& messages) {
  const ncclComm& comm = *messages.comm;
  for (const Message& message : messages.sends) {
    Offer& own = comm.shared->messages[comm.rank][message.peer];
    own.data = message.data;
    own.bytes = message.bytes;
    own.open = 1;
  }
  for (const Message& message : messages.receives) {
    Offer& theirs = comm.shared->messages[message.peer][comm.rank];
    wait_until([&] { return theirs.open == 1; });
    if (theirs.bytes != message.bytes) fail("a message is not as long as its receiver expects");
    read_from(comm, message.peer, theirs.data, message.data, message.bytes);
    theirs.open = 0;
  }
  for (const Message& message : messages.sends)
    wait_until([&] { return comm.shared->messages[comm.rank][message.peer].open == 0; });
}

/// One more of the group's sends or receives.
void add_message(std::vector<Message>& messages, const Message& message, ncclComm_t comm,
                 cudaStream_t stream) {
  if (open_groups == 0) fail("a message outside of a group is not simulated");
  messages.push_back(message);
  group.comm = comm;
  group.stream = stream;
}

Message message_of(const void* data, std::size_t count, ncclDataType_t type, int peer) {
  return {static_cast<std::size_t>(peer), simulated::to_host(data), bytes_of(count, type)};
}

void add_all(const ncclComm& comm, const void* from, void* to, std::size_t count, ncclDataType_t type) {
  const std::size_t bytes = bytes_of(count, type);
  offer(comm, from, bytes);
  std::vector<std::vector<char>> parts(comm.size, std::vector<char>(bytes));
  for (std::size_t rank = 0; rank < comm.size; ++rank) read_offer(comm, rank, parts[rank].data(), bytes);
  meet(comm);
  void* const out = simulated::to_host(to);
  type == ncclFloat64 ? add_up<double>(parts, out, count) : add_up<float>(parts, out, count);
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  static int count = 0;
  std::memset(id->internal, 0, sizeof id->internal);
  std::snprintf(id->internal, sizeof id->internal, "/simulated-nccl-%d-%d", getpid(), ++count);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank, ncclConfig_t*) {
  if (static_cast<std::size_t>(size) > kMostRanks) return ncclInvalidArgument;
  const int file = shm_open(id.internal, O_CREAT | O_RDWR, S_IRUSR | S_IWUSR);
  if (file < 0 || ftruncate(file, sizeof(Shared)) != 0) return ncclSystemError;
  void* const memory = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  if (memory == MAP_FAILED) return ncclSystemError;
  *comm = new ncclComm{static_cast<std::size_t>(rank), static_cast<std::size_t>(size),
                       static_cast<Shared*>(memory)};
  prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);  // who may read this process' memory
  (*comm)->shared->process[(*comm)->rank] = getpid();
  meet(**comm);
  if (rank == 0) shm_unlink(id.internal);
  return ncclInProgress;  // as of a communicator that does not block
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* code) {
  *code = ncclSuccess;
  return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t) { return ncclSuccess; }

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  munmap(comm->shared, sizeof(Shared));
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t) { return ncclSuccess; }
const char* ncclGetErrorString(ncclResult_t) { return "refused"; }
const char* ncclGetLastError(ncclComm_t) { return "simulated NCCL"; }

ncclResult_t ncclGroupStart() {
  ++open_groups;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--open_groups > 0 || group.comm == nullptr) return ncclSuccess;
  put(simulated::stream_of(group.stream), [call = std::exchange(group, {})] { exchange(call); });
  return ncclSuccess;
}

ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  add_message(group.sends, message_of(data, count, type, peer), comm, stream);
  return ncclSuccess;
}

ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
  add_message(group.receives, message_of(data, count, type, peer), comm, stream);
  return ncclSuccess;
}

ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t stream) {
  put(simulated::stream_of(stream), [=, bytes = bytes_of(count, type)] {
    offer(*comm, from, bytes);
    read_offer(*comm, static_cast<std::size_t>(root), simulated::to_host(to), bytes);
    meet(*comm);
  });
  return ncclSuccess;
}

ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
  put(simulated::stream_of(stream), [=, bytes = bytes_of(count, type)] {
    offer(*comm, from, bytes);
    auto* const out = static_cast<char*>(simulated::to_host(to));
    for (std::size_t rank = 0; rank < comm->size; ++rank) read_offer(*comm, rank, out + rank * bytes, bytes);
    meet(*comm);
  });
  return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t,
                           ncclComm_t comm, cudaStream_t stream) {
  if (type == ncclInt8) fail("sums of this type are not simulated");
  put(simulated::stream_of(stream), [=] { add_all(*comm, from, to, count, type); });
  return ncclSuccess;
}

}  // extern "C"
