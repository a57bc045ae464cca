// A dataset of an open H5File: a row-major array, transferred in ranges of rows along its first dimension. In
// a parallel file every transfer is collective over the file's Comm: a failing read throws AgreedError on all
// ranks, a failing write ends the job (abandon_file). In a file of a single process transfers are
// local and throw Error. The object holds no values. The file must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dist/comm/mpi.h"
#include "io/hdf5/h5.h"

namespace headspan {

/// Ends the job after a write to a parallel file failed, or HDF5 could not close a file: HDF5 and MPI-IO
/// cannot continue with such a file, not even at their own end; ranks would deadlock or crash. Rank 0 removes
/// the file, prints `why` and aborts with exit code 1. Collective over comm.
[[noreturn]] void abandon_file(const Comm& comm, const std::string& path, const std::string& why);

/// Throws InputError unless every value of an open dataset is stored in its file, which has `file_bytes`
/// bytes: values in other files and values that were never written are refused. Local.
void check_stored(hid_t dataset, const std::string& path, const std::string& name, std::int64_t file_bytes);

class H5Dataset {
 public:
  /// Takes ownership of the open dataset `name` of the file at `path`; `comm` is null for a file of a single
  /// process. Called by H5File.
  H5Dataset(H5Handle dataset, const std::string& path, const std::string& name, const Comm* comm);

  /// The extents; the first one is the number of rows.
  const std::vector<std::int64_t>& shape() const { return shape_; }
  H5T_class_t type_class() const;
  std::int64_t element_bytes() const;

  /// Writes rows: [count, shape[1], ...], this rank's rows first .. first + count of the dataset. If count is
  /// 0, `rows` may be null. T must be the type in the file: a conversion would make the transfer independent.
  template <class T>
  void write_rows(const T* rows, std::int64_t first, std::int64_t count) {
    write(rows, first, count, h5_type<T>());
  }

  /// Reads rows in the layout of write_rows; HDF5 converts between number types. Throws InputError if the
  /// dataset does not hold numbers, or holds floating-point numbers and T is an integer.
  template <class T>
  void read_rows(std::int64_t first, std::int64_t count, T* rows) {
    read(rows, first, count, h5_type<T>());
  }

  /// Returns why any transfer through this object was not collective on some rank, as bits of
  /// H5D_mpio_no_collective_cause_t; 0 if all were, and in a file of a single process.
  std::uint32_t independence_causes() const { return independence_causes_; }

 private:
  /// The rows that one HDF5 call transfers.
  struct Chunk {
    std::int64_t first, count;           // rows of the dataset
    std::int64_t offset;                 // in the caller's memory, in bytes
    hid_t memory, file, transfer_plist;  // selections
  };

  void write(const void* rows, std::int64_t first, std::int64_t count, hid_t type);
  void read(void* rows, std::int64_t first, std::int64_t count, hid_t type);
  void transfer(std::int64_t first, std::int64_t count, hid_t type,
                const std::function<void(const Chunk&)>& move);
  void transfer_chunk(Chunk chunk, const std::function<void(const Chunk&)>& move);
  std::int64_t row_bytes(hid_t type) const;

  H5Handle dataset_;
  std::string path_, name_;
  const Comm* comm_ = nullptr;
  std::vector<std::int64_t> shape_;
  std::uint32_t independence_causes_ = 0;
};

}  // namespace headspan
