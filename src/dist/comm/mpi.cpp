#include "dist/comm/mpi.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <thread>
#include <utility>

#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/process/process_setup.h"

namespace headspan {
namespace {

// MPI counts are int: larger transfers go in chunks.
constexpr std::int64_t kChunkBytes = std::int64_t{1} << 30;

constexpr unsigned kAbortSeconds = 10;  // time for MPI_Abort

int rank_in_world = 0;  // kept for threads that may not call MPI

bool mpi_is_running() {
  int initialised = 0, finalised = 0;
  MPI_Initialized(&initialised);
  MPI_Finalized(&finalised);
  return initialised != 0 && finalised == 0;
}

[[noreturn]] void on_terminate() {
  std::string what = "terminated without an exception";
  if (const auto pending = std::current_exception()) {
    try {
      std::rethrow_exception(pending);
    } catch (const std::exception& e) {
      what = error_message(e);
    } catch (...) {
      what = "an exception of unknown type";
    }
  }
  abort_job(what);
}

/// Returns whether this thread may call MPI. Any thread may call this function, because the calls in it are
/// thread-safe.
bool may_call_mpi() {
  int main_thread = 0;
  if (mpi_is_running()) MPI_Is_thread_main(&main_thread);
  return main_thread != 0;
}

/// Waits until the launcher has read what this process has printed, a second at most: that of MPICH drops the
/// rest when a job is aborted.
void wait_until_read() {
  struct stat out {};
  if (::fstat(STDERR_FILENO, &out) != 0 || !S_ISFIFO(out.st_mode)) return;
  int unread = 0;
  for (int waited = 0; waited < 100; ++waited) {
    if (::ioctl(STDERR_FILENO, FIONREAD, &unread) != 0 || unread == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace

void check_mpi(int code, const char* call, const char* file, int line) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw Error("MPI: " + std::string(text, static_cast<std::size_t>(length)) + " in " + call + " (" + file +
              ":" + std::to_string(line) + ")");
}

MpiSession::MpiSession(int* argc, char*** argv) {
  disable_shared_file_pointers();
  struct sigaction before {};
  sigaction(SIGUSR1, nullptr, &before);
  int provided = MPI_THREAD_SINGLE;
  HS_MPI(MPI_Init_thread(argc, argv, MPI_THREAD_FUNNELED, &provided));
  sigaction(SIGUSR1, &before, nullptr);  // MPICH takes it, and a process would no longer end
  if (provided < MPI_THREAD_FUNNELED) throw Error("this MPI library does not offer MPI_THREAD_FUNNELED");
  std::set_terminate(on_terminate);
  HS_MPI(MPI_Comm_rank(MPI_COMM_WORLD, &rank_in_world));
}

MpiSession::~MpiSession() {
  if (mpi_is_running()) MPI_Finalize();
}

int world_rank() { return rank_in_world; }

void abort_job(const std::string& what) {
  std::fprintf(stderr, "headspan: rank %d: %s\n", rank_in_world, what.c_str());
  std::fflush(stderr);
  end_job();
}

void end_job() {
  wait_until_read();
  if (may_call_mpi()) {
    std::signal(SIGALRM, [](int) { std::_Exit(1); });
    ::alarm(kAbortSeconds);
    MPI_Abort(MPI_COMM_WORLD, 1);
  }
  std::_Exit(1);
}

void wait_all(std::vector<MPI_Request>& requests) {
  HS_MPI(
      MPI_Waitall(to_int(static_cast<std::int64_t>(requests.size())), requests.data(), MPI_STATUSES_IGNORE));
  requests.clear();
}

template <>
MPI_Datatype mpi_type<double>() {
  return MPI_DOUBLE;
}
template <>
MPI_Datatype mpi_type<float>() {
  return MPI_FLOAT;
}
template <>
MPI_Datatype mpi_type<int>() {
  return MPI_INT;
}
template <>
MPI_Datatype mpi_type<std::int64_t>() {
  return MPI_INT64_T;
}
template <>
MPI_Datatype mpi_type<std::uint8_t>() {
  return MPI_UINT8_T;
}
template <>
MPI_Datatype mpi_type<char>() {
  return MPI_BYTE;
}

Comm::Comm(MPI_Comm owned) : comm_(owned) {
  HS_MPI(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN));
  HS_MPI(MPI_Comm_rank(comm_, &rank_));
  HS_MPI(MPI_Comm_size(comm_, &size_));
}

Comm Comm::duplicate(MPI_Comm comm) {
  MPI_Comm copy = MPI_COMM_NULL;
  HS_MPI(MPI_Comm_dup(comm, &copy));
  return Comm(copy);
}

Comm::~Comm() {
  if (comm_ != MPI_COMM_NULL && mpi_is_running()) MPI_Comm_free(&comm_);
}

Comm::Comm(Comm&& other) noexcept { *this = std::move(other); }

Comm& Comm::operator=(Comm&& other) noexcept {
  std::swap(comm_, other.comm_);
  std::swap(rank_, other.rank_);
  std::swap(size_, other.size_);
  return *this;
}

Comm Comm::split(int color, int key) const {
  MPI_Comm group = MPI_COMM_NULL;
  HS_MPI(MPI_Comm_split(comm_, color, key, &group));
  return Comm(group);
}

Comm Comm::split_shared() const {
  MPI_Comm node = MPI_COMM_NULL;
  HS_MPI(MPI_Comm_split_type(comm_, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &node));
  return Comm(node);
}

void Comm::barrier() const { HS_MPI(MPI_Barrier(comm_)); }

template <class T>
void Comm::sum(T* values, std::int64_t count) const {
  // Reduce and broadcast rather than all-reduce: some all-reduce algorithms give ranks different bits.
  const std::int64_t step = kChunkBytes / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < count; i += step) {
    const int n = to_int(std::min(step, count - i));
    HS_MPI(
        MPI_Reduce(is_root() ? MPI_IN_PLACE : values + i, values + i, n, mpi_type<T>(), MPI_SUM, 0, comm_));
    HS_MPI(MPI_Bcast(values + i, n, mpi_type<T>(), 0, comm_));
  }
}

template <class T>
T Comm::max(T value) const {
  T result = value;
  HS_MPI(MPI_Allreduce(&value, &result, 1, mpi_type<T>(), MPI_MAX, comm_));
  return result;
}

template <class T>
T Comm::min(T value) const {
  T result = value;
  HS_MPI(MPI_Allreduce(&value, &result, 1, mpi_type<T>(), MPI_MIN, comm_));
  return result;
}

template <class T>
void Comm::broadcast(T* values, std::int64_t count, int root) const {
  const std::int64_t step = kChunkBytes / static_cast<std::int64_t>(sizeof(T));
  for (std::int64_t i = 0; i < count; i += step)
    HS_MPI(MPI_Bcast(values + i, to_int(std::min(step, count - i)), mpi_type<T>(), root, comm_));
}

std::string Comm::broadcast(std::string text, int root) const {
  auto length = static_cast<std::int64_t>(text.size());
  broadcast(&length, 1, root);
  text.resize(static_cast<std::size_t>(length));
  broadcast(text.data(), length, root);
  return text;
}

template <class T>
std::vector<T> Comm::all_gather(T value) const {
  std::vector<T> values(static_cast<std::size_t>(size_));
  HS_MPI(MPI_Allgather(&value, 1, mpi_type<T>(), values.data(), 1, mpi_type<T>(), comm_));
  return values;
}

std::vector<std::int64_t> Comm::exchange_counts(const std::vector<std::int64_t>& counts) const {
  HS_ASSERT(counts.size() == static_cast<std::size_t>(size_));
  std::vector<std::int64_t> incoming(counts.size());
  HS_MPI(MPI_Alltoall(counts.data(), 1, MPI_INT64_T, incoming.data(), 1, MPI_INT64_T, comm_));
  return incoming;
}

void Comm::exchange(const std::vector<Bytes<const char>>& send,
                    const std::vector<Bytes<char>>& receive) const {
  std::vector<MPI_Request> requests;
  for (int r = 0; r < size_; ++r) {
    if (r != rank_) begin_receive(receive[static_cast<std::size_t>(r)], r, 0, requests);
  }
  for (int r = 0; r < size_; ++r) {
    const auto [data, count] = send[static_cast<std::size_t>(r)];
    if (r == rank_)
      std::copy_n(data, count, receive[static_cast<std::size_t>(r)].data);
    else
      begin_send({data, count}, r, 0, requests);
  }
  wait_all(requests);
}

void Comm::begin_send(Bytes<const char> from, int rank, int tag, std::vector<MPI_Request>& requests) const {
  for (std::int64_t i = 0; i < from.count; i += kChunkBytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    HS_MPI(MPI_Isend(from.data + i, to_int(std::min(kChunkBytes, from.count - i)), MPI_BYTE, rank, tag, comm_,
                     &request));
    requests.push_back(request);
  }
}

void Comm::begin_receive(Bytes<char> to, int rank, int tag, std::vector<MPI_Request>& requests) const {
  for (std::int64_t i = 0; i < to.count; i += kChunkBytes) {
    MPI_Request request = MPI_REQUEST_NULL;
    HS_MPI(MPI_Irecv(to.data + i, to_int(std::min(kChunkBytes, to.count - i)), MPI_BYTE, rank, tag, comm_,
                     &request));
    requests.push_back(request);
  }
}

void Comm::exchange_equal(const void* send, std::int64_t stride, std::int64_t bytes, void* receive) const {
  exchange(strided_chunks(static_cast<const char*>(send), stride, bytes, size_),
           strided_chunks(static_cast<char*>(receive), bytes, bytes, size_));
}

template void Comm::sum(double*, std::int64_t) const;
template void Comm::sum(float*, std::int64_t) const;
template void Comm::sum(int*, std::int64_t) const;
template void Comm::sum(std::int64_t*, std::int64_t) const;
template double Comm::max(double) const;
template int Comm::max(int) const;
template std::int64_t Comm::max(std::int64_t) const;
template double Comm::min(double) const;
template int Comm::min(int) const;
template std::int64_t Comm::min(std::int64_t) const;
template void Comm::broadcast(double*, std::int64_t, int) const;
template void Comm::broadcast(float*, std::int64_t, int) const;
template void Comm::broadcast(int*, std::int64_t, int) const;
template void Comm::broadcast(std::int64_t*, std::int64_t, int) const;
template void Comm::broadcast(char*, std::int64_t, int) const;
template std::vector<int> Comm::all_gather(int) const;
template std::vector<std::int64_t> Comm::all_gather(std::int64_t) const;
template std::vector<double> Comm::all_gather(double) const;

}  // namespace headspan
