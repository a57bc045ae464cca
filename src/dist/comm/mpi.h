// MPI as headspan uses it: a session object, an owning communicator, and checked collectives with 64-bit
// counts. Not a wrapper of all of MPI: a routine that needs more calls MPI on `Comm::get()` through HS_MPI.
//
// Every communicator made here returns its errors (MPI_ERRORS_RETURN), and HS_MPI turns them into Error.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <mpi.h>

#include "base/error.h"

namespace headspan {

/// Throws Error with MPI's description if `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* call, const char* file, int line);

#define HS_MPI(call) ::headspan::check_mpi((call), #call, __FILE__, __LINE__)

/// Initialises MPI (thread level FUNNELED) and finalises it. One per process. Installs a terminate handler
/// that prints `rank R: ...` and aborts the whole job, so that no uncaught exception leaves other ranks
/// waiting. What SIGUSR1 does stays the same.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};

/// Returns the rank of this process in MPI_COMM_WORLD; 0 before MPI starts. Any thread may call it.
int world_rank();

/// Prints `headspan: rank R: WHAT` and calls end_job().
[[noreturn]] void abort_job(const std::string& what);

/// Ends all ranks of the job, this process with exit code 1. Any thread may call it. If this thread may not
/// call MPI, or MPI_Abort blocks for some seconds, only this process ends, and the launcher ends the others.
[[noreturn]] void end_job();

/// Waits for all requests and clears the list. Throws Error.
void wait_all(std::vector<MPI_Request>& requests);

/// Returns the MPI datatype of T: double, float, int, std::int64_t, std::uint8_t or char.
template <class T>
MPI_Datatype mpi_type();

/// A view of `count` bytes. Byte: char, or const char if they are only read.
template <class Byte>
struct Bytes {
  Byte* data;
  std::int64_t count;
};

/// Returns views of `count` chunks of `bytes` bytes that begin `stride` bytes apart.
template <class Byte>
std::vector<Bytes<Byte>> strided_chunks(Byte* data, std::int64_t stride, std::int64_t bytes, int count) {
  std::vector<Bytes<Byte>> chunks;
  chunks.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) chunks.push_back({data + i * stride, bytes});
  return chunks;
}

/// Owns a communicator. Move-only; freed in the destructor unless MPI has been finalised.
class Comm {
 public:
  /// Duplicates `comm`. Collective over it.
  static Comm duplicate(MPI_Comm comm);

  Comm() = default;
  ~Comm();
  Comm(Comm&& other) noexcept;
  Comm& operator=(Comm&& other) noexcept;

  MPI_Comm get() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_root() const { return rank_ == 0; }

  /// Returns the communicator of the ranks that pass the same `color`, ordered by `key`. Collective.
  Comm split(int color, int key) const;
  /// Returns the communicator of the ranks that share this rank's memory. Collective.
  Comm split_shared() const;

  void barrier() const;  ///< Collective.

  /// Replaces values: [count] by their sums over the ranks, bit-identical on all ranks. Collective.
  template <class T>
  void sum(T* values, std::int64_t count) const;
  /// Returns the maximum over the ranks. Collective.
  template <class T>
  T max(T value) const;
  /// Returns the minimum over the ranks. Collective.
  template <class T>
  T min(T value) const;

  /// Sends values: [count] from `root` to all ranks; `count` may exceed 2^31. Collective.
  template <class T>
  void broadcast(T* values, std::int64_t count, int root) const;
  /// Returns `text` of `root` on all ranks. Collective.
  std::string broadcast(std::string text, int root) const;

  /// Returns the value of each rank, in rank order. Collective.
  template <class T>
  std::vector<T> all_gather(T value) const;

  /// Gathers send: [count] of all ranks in receive: [size, count]. T is trivially copyable. Collective.
  template <class T>
  void all_gather(const T* send, std::int64_t count, T* receive) const;

  /// Sends row r of send: [size, count] to rank r, and receives row r of receive: [size, count] from it (an
  /// all-to-all). T is trivially copyable. Collective.
  template <class T>
  void exchange(const T* send, std::int64_t count, T* receive) const;

  /// Sends send[r] to rank r, and returns what each rank sent here, in rank order. Bytes per pair of ranks
  /// may exceed 2^31. T is trivially copyable. Collective.
  template <class T>
  std::vector<std::vector<T>> exchange(const std::vector<std::vector<T>>& send) const;

  /// Returns the values of each rank, in rank order, on rank 0; empty vectors on the others. T is trivially
  /// copyable. Collective.
  template <class T>
  std::vector<std::vector<T>> gather(std::vector<T> values) const;

  /// Sends send[r] to rank r, and receives into receive[r] what rank r sends here, which must be as long.
  /// Collective.
  void exchange(const std::vector<Bytes<const char>>& send, const std::vector<Bytes<char>>& receive) const;

  /// Begins a message to or from another rank, which begins its side with as many bytes and the same `tag`.
  /// Appends a request to `requests` for each GiB, those before an error too. Throws Error.
  void begin_send(Bytes<const char> from, int rank, int tag, std::vector<MPI_Request>& requests) const;
  void begin_receive(Bytes<char> to, int rank, int tag, std::vector<MPI_Request>& requests) const;

 private:
  explicit Comm(MPI_Comm owned);
  /// Sends counts[r] to rank r, and returns what each rank sent here.
  std::vector<std::int64_t> exchange_counts(const std::vector<std::int64_t>& counts) const;
  /// Sends `bytes` bytes at send + r stride to rank r; those received from the ranks lie end to end.
  void exchange_equal(const void* send, std::int64_t stride, std::int64_t bytes, void* receive) const;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
};

template <class T>
void Comm::all_gather(const T* send, std::int64_t count, T* receive) const {
  static_assert(std::is_trivially_copyable_v<T>);
  exchange_equal(send, 0, count * static_cast<std::int64_t>(sizeof(T)), receive);
}

template <class T>
void Comm::exchange(const T* send, std::int64_t count, T* receive) const {
  static_assert(std::is_trivially_copyable_v<T>);
  const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(T));
  exchange_equal(send, bytes, bytes, receive);
}

template <class T>
std::vector<std::vector<T>> Comm::exchange(const std::vector<std::vector<T>>& send) const {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<std::int64_t> counts;
  counts.reserve(send.size());
  for (const auto& part : send) counts.push_back(static_cast<std::int64_t>(part.size()));
  const auto incoming = exchange_counts(counts);
  std::vector<std::vector<T>> result(send.size());
  std::vector<Bytes<const char>> from;
  std::vector<Bytes<char>> to;
  const auto bytes = [](std::int64_t count) { return count * static_cast<std::int64_t>(sizeof(T)); };
  for (std::size_t r = 0; r < send.size(); ++r) {
    result[r].resize(static_cast<std::size_t>(incoming[r]));
    from.push_back({reinterpret_cast<const char*>(send[r].data()), bytes(counts[r])});
    to.push_back({reinterpret_cast<char*>(result[r].data()), bytes(incoming[r])});
  }
  exchange(from, to);
  return result;
}

template <class T>
std::vector<std::vector<T>> Comm::gather(std::vector<T> values) const {
  std::vector<std::vector<T>> send(static_cast<std::size_t>(size_));
  send[0] = std::move(values);
  return exchange(send);
}

}  // namespace headspan
