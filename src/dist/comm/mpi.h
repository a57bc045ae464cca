// MPI as headspan uses it: a session object, an owning communicator, and checked collectives with 64-bit
// counts. Not a wrapper of all of MPI: what a routine needs beyond this it calls on `Comm::get()` through
// HS_MPI.
//
// Every communicator made here returns its errors (MPI_ERRORS_RETURN) and HS_MPI turns them into Error.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <mpi.h>

#include "base/error.h"

namespace headspan {

/// Throws Error with MPI's own text when `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* call, const char* file, int line);

#define HS_MPI(call) ::headspan::check_mpi((call), #call, __FILE__, __LINE__)

/// Initialises MPI (thread level FUNNELED) and finalises it. One per process. Installs a terminate handler
/// that prints `rank R: ...` and aborts the whole job, so that no stray exception leaves other ranks waiting.
class MpiSession {
 public:
  MpiSession(int* argc, char*** argv);
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;
};

/// Prints `headspan: rank R: WHAT` and ends every rank of the job, this process with exit code 1. From any
/// thread: one that may not call MPI leaves the other ranks to the launcher, and so does MPI_Abort where it
/// blocks, after some seconds.
[[noreturn]] void abort_job(const std::string& what);

/// Likewise without a word, for what has been told.
[[noreturn]] void end_job();

/// The MPI datatype of T: one of double, float, int, std::int64_t, std::uint8_t, char.
template <class T>
MPI_Datatype mpi_type();

/// `count` bytes of someone else's memory. Byte: char, or const char where they are only read.
template <class Byte>
struct Bytes {
  Byte* data;
  std::int64_t count;
};

/// Owner of one communicator. Move-only; freed in the destructor unless MPI has been finalised.
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

  /// The ranks that pass the same `color`, ordered by `key`. Collective.
  Comm split(int color, int key) const;
  /// The ranks that share this rank's memory. Collective.
  Comm split_shared() const;

  void barrier() const;  ///< Collective.

  /// In place. Collective; every rank gets the same bits.
  template <class T>
  void sum(T* values, std::int64_t count) const;
  template <class T>
  T max(T value) const;
  template <class T>
  T min(T value) const;

  /// From `root` to all; chunked, so `count` may exceed 2^31. Collective.
  template <class T>
  void broadcast(T* values, std::int64_t count, int root) const;
  std::string broadcast(std::string text, int root) const;

  /// One value of each rank, in rank order, on all. Collective.
  template <class T>
  std::vector<T> all_gather(T value) const;

  /// `count` values of each rank, in rank order; T is trivially copyable. Collective.
  template <class T>
  void all_gather(const T* send, std::int64_t count, T* receive) const;

  /// The r-th `count` values of `send` go to rank r; what rank r sent here becomes the r-th of `receive`.
  /// Likewise.
  template <class T>
  void exchange(const T* send, std::int64_t count, T* receive) const;

  /// send[r] goes to rank r; returns what each rank sent here, in rank order. Bytes per rank pair may exceed
  /// 2^31. T is trivially copyable. Collective.
  template <class T>
  std::vector<std::vector<T>> exchange(const std::vector<std::vector<T>>& send) const;

  /// Returns the values of each rank, in rank order, on rank 0; empty vectors on the others. T is trivially
  /// copyable. Collective.
  template <class T>
  std::vector<std::vector<T>> gather(std::vector<T> values) const;

  /// send[r] goes to rank r, and what rank r sends here into receive[r], which is as long as what it sends.
  /// Likewise.
  void exchange(const std::vector<Bytes<const char>>& send, const std::vector<Bytes<char>>& receive) const;

  /// Begins a message between this rank and another: one request for each GiB of it is added to `requests`,
  /// in which nothing else stands where a call throws. The other side begins as many bytes with this `tag`.
  void begin_send(Bytes<const char> from, int rank, int tag, std::vector<MPI_Request>& requests) const;
  void begin_receive(Bytes<char> to, int rank, int tag, std::vector<MPI_Request>& requests) const;

 private:
  explicit Comm(MPI_Comm owned);
  /// counts[r] goes to rank r; what each rank sent here.
  std::vector<std::int64_t> exchange_counts(const std::vector<std::int64_t>& counts) const;
  /// `bytes` of `send`, `stride` further for each rank, go to the ranks in turn; those received lie end to
  /// end.
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
