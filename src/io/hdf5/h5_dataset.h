// One dataset of an open H5File: a row-major array that is moved in slabs of rows along its first dimension.
// In a parallel file every transfer is collective over the file's Comm: a failing read fails on all ranks
// alike (AgreedError), a failing write ends the job (abandon_parallel_file). In a file of one process it is
// local and throws Error. Holds no values. The file must outlive it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dist/comm/mpi.h"
#include "io/hdf5/h5.h"

namespace headspan {

/// Why a transfer was not collective (bits of H5D_mpio_no_collective_cause_t), on this rank and on any rank:
/// 0 and 0 when it was.
struct H5Causes {
  std::uint32_t local = 0;
  std::uint32_t global = 0;
};

/// Ends the job after a write to a parallel file failed: HDF5 and MPI-IO cannot go on with such a file, not
/// even close it; ranks would wait for each other or crash. Rank 0 removes the file, tells why (and whether
/// the disk is full, for HDF5 over MPI-IO hides errno) and aborts with exit code 1. `why` is what the ranks
/// agreed on. Collective.
[[noreturn]] void abandon_parallel_file(const Comm& comm, const std::string& path, const std::string& why);

/// Throws InputError unless every value of an open dataset is stored in its file, which has `file_bytes`
/// bytes: not elsewhere, and not as what was never written. Local.
void check_stored(hid_t dataset, const std::string& path, const std::string& name, std::int64_t file_bytes);

class H5Dataset {
 public:
  /// Takes over the open dataset `name` of the file at `path`; `comm` is null in a file of one process. For
  /// H5File.
  H5Dataset(H5Handle dataset, const std::string& path, const std::string& name, const Comm* comm);

  /// Extents; the first one counts the rows.
  const std::vector<std::int64_t>& shape() const { return shape_; }
  H5T_class_t type_class() const;
  std::int64_t element_bytes() const;
  hid_t id() const { return dataset_.get(); }

  /// rows: [count, shape[1], ...], this rank's rows first .. first + count of the file. count may be 0, rows
  /// null then. T is the file's own type, so that nothing is converted and the transfer stays collective.
  template <class T>
  void write_rows(const T* rows, std::int64_t first, std::int64_t count) {
    write(rows, first, count, h5_type<T>());
  }

  /// The same for reading; HDF5 converts between number types here. Throws InputError where the file holds no
  /// numbers, or floating-point ones for an integral T.
  template <class T>
  void read_rows(std::int64_t first, std::int64_t count, T* rows) {
    read(rows, first, count, h5_type<T>());
  }

  /// Of all transfers through this object together. 0 and 0 in a file of one process.
  H5Causes causes() const { return causes_; }

 private:
  struct Piece {
    std::int64_t first, count;           // rows
    std::int64_t byte;                   // place in the caller's memory
    hid_t memory, file, transfer_plist;  // selections
  };

  void write(const void* rows, std::int64_t first, std::int64_t count, hid_t type);
  void read(void* rows, std::int64_t first, std::int64_t count, hid_t type);
  void transfer(std::int64_t first, std::int64_t count, hid_t type,
                const std::function<void(const Piece&)>& move);
  void transfer_piece(Piece piece, const std::function<void(const Piece&)>& move);
  std::int64_t row_bytes(hid_t type) const;

  H5Handle dataset_;
  std::string path_, name_;
  const Comm* comm_ = nullptr;
  std::vector<std::int64_t> shape_;
  H5Causes causes_;
};

}  // namespace headspan
