// An HDF5 file, opened by a single process or by all ranks of a communicator. Objects are named by their path
// in the file: "/", "k", "k/r2". Datasets are contiguous arrays of numbers (io/hdf5/h5.h) or of
// strings, created with their final shape and written completely (no fill values, chunks or filters).
// Creation order is tracked and indexed everywhere, as netCDF-4 requires; HDF5 1.8 and later can read the
// file; HDF5_USE_FILE_LOCKING is respected.
//
// Everything that is read must be in the file itself: external links, external storage, virtual datasets and
// partly written datasets are refused. Attributes hold strings of fixed length, because HDF5 does not survive
// damage to strings of variable length (io/hdf5/h5_string.h). Datasets of strings, which netCDF-4 requires to
// be of variable length, are written but never read.
//
// A file opened with a Comm is parallel: every member function is collective over it, with equal arguments on
// all ranks, and fails on all ranks: with AgreedError, except that a failing write ends the job
// (abandon_file). The Comm must outlive the file. A file opened without a Comm belongs to a single
// process; its functions throw Error, or InputError if the contents of a file opened for reading are at
// fault.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "dist/comm/mpi.h"
#include "io/hdf5/h5.h"
#include "io/hdf5/h5_dataset.h"

namespace headspan {

class H5File {
 public:
  static H5File create(const Comm& comm, const std::string& path);  ///< Replaces an existing file.
  static H5File open(const Comm& comm, const std::string& path);    ///< Opens for reading.
  static H5File create(const std::string& path);                    ///< Replaces an existing file.
  static H5File open(const std::string& path);                      ///< Opens for reading.
  static H5File edit(const std::string& path);                      ///< Opens for reading and writing.

  H5File(H5File&&) noexcept = default;
  H5File& operator=(H5File&&) noexcept = default;
  /// Closes, which is collective; a rank that fails alone leaves the file open, and its exception must end
  /// the job.
  ~H5File();

  const std::string& path() const { return path_; }
  hid_t id() const { return file_.get(); }

  bool has(const std::string& name) const;
  H5Handle open_object(const std::string& name) const;  ///< Opens a group or a dataset.

  void create_group(const std::string& name);

  /// Creates a dataset and reserves its bytes on the disk, so that a full disk fails here, with errno's text.
  /// The values are undefined until they are written.
  template <class T>
  H5Dataset create_dataset(const std::string& name, const std::vector<std::int64_t>& shape) {
    return create_dataset(name, shape, h5_type<T>());
  }

  /// Opens a dataset. Throws InputError if the file was opened for reading and does not hold every value.
  H5Dataset open_dataset(const std::string& name) const;

  /// Creates a dataset of `count` empty strings.
  void create_strings(const std::string& name, std::int64_t count);
  /// Fills such a dataset, in a file of a single process only: HDF5 cannot write strings in parallel.
  void write_strings(const std::string& name, const std::vector<std::string>& values);

  /// Writes an attribute, replacing one of the same name.
  void write_attribute(const std::string& object, const std::string& name, const H5Value& value);

  /// Reads an attribute; nothing if it is missing. T is std::string (for any HDF5 string type), std::int64_t,
  /// double, or a std::vector of one of the last two. Throws InputError if the attribute holds something
  /// else. Local.
  template <class T>
  std::optional<T> read_attribute(const std::string& object, const std::string& name) const;

  /// Flushes to the disk on every rank, then closes. Call it for every written file: the destructor could not
  /// report a failure. The file's datasets must have been destroyed.
  void close();

 private:
  H5File(const Comm* comm, const std::string& path) : comm_(comm), path_(path) {}
  static H5File create(const Comm* comm, const std::string& path);
  static H5File open(const Comm* comm, const std::string& path, unsigned flags);
  H5Dataset create_dataset(const std::string& name, const std::vector<std::int64_t>& shape, hid_t type);
  void follow(const std::string& name, const std::function<void(hid_t link_access)>& step) const;
  void local(const std::string& object, const std::function<void()>& step) const;
  void collective(const std::string& object, const std::function<void()>& step) const;

  const Comm* comm_ = nullptr;
  std::string path_;
  std::optional<std::int64_t> bytes_;  // of a file opened for reading
  H5Handle file_;
};

}  // namespace headspan
