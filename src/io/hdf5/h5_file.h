// One HDF5 file, of one process or of all ranks of a communicator. Objects are named by their path in the
// file: "/", "k", "k/r2". Datasets are contiguous arrays of double, float, int64, int32, uint8 or strings,
// made once with their final shape and written completely (no fill values, no chunks, no filters). Creation
// order is tracked and indexed everywhere, as netCDF-4 asks; every HDF5 from 1.8 on can read the file;
// HDF5_USE_FILE_LOCKING is respected.
//
// What is read stands in the file itself, and all of it: external links, external storage, virtual datasets
// and datasets that are stored in part are refused. Strings of attributes have a fixed length, for HDF5 does
// not survive damage to others (io/hdf5/h5_string.h); a dataset of strings, which netCDF-4 has of variable
// length only, is written and never read.
//
// A file made with a Comm is parallel: every member function is collective over it, with equal arguments on
// all ranks, and fails on all ranks alike: with AgreedError, but a write that fails ends the job
// (abandon_parallel_file). The Comm must outlive the file. A file made without one belongs to a single
// process and throws Error, or InputError where the contents of a file opened for reading are at fault.
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
  static H5File create(const Comm& comm, const std::string& path);  ///< Replaces what is there.
  static H5File open(const Comm& comm, const std::string& path);    ///< For reading.
  static H5File create(const std::string& path);                    ///< Replaces what is there.
  static H5File open(const std::string& path);                      ///< For reading.
  static H5File edit(const std::string& path);                      ///< For reading and writing.

  const std::string& path() const { return path_; }
  hid_t id() const { return file_.get(); }

  bool has(const std::string& name) const;
  H5Handle open_object(const std::string& name) const;  ///< a group or a dataset of this file

  void create_group(const std::string& name);

  /// Its bytes are reserved on the disk at once, so that a full disk is told here, with errno's text. The
  /// values are undefined until they are written.
  template <class T>
  H5Dataset create_dataset(const std::string& name, const std::vector<std::int64_t>& shape) {
    return create_dataset(name, shape, h5_type<T>());
  }

  /// A file opened for reading has to hold every value of it; throws InputError otherwise.
  H5Dataset open_dataset(const std::string& name) const;

  /// A dataset of `count` empty strings. Only a file of one process can fill it: HDF5 writes no strings in
  /// parallel.
  void create_strings(const std::string& name, std::int64_t count);
  void write_strings(const std::string& name, const std::vector<std::string>& values);

  void write_attribute(const std::string& object, const std::string& name, const H5Value& value);

  /// Nothing when the attribute is missing; InputError when it is not of T's kind. T is std::string (of any
  /// HDF5 string type), std::int64_t, double, or a std::vector of one of the last two. Local.
  template <class T>
  std::optional<T> read_attribute(const std::string& object, const std::string& name) const;

  /// Flushes to the disk on every rank, then closes. Every written file is ended by this and not by the
  /// destructor, which could not report a failure. The file's datasets must be gone.
  void close();

 private:
  H5File(const Comm* comm, const std::string& path) : comm_(comm), path_(path) {}
  static H5File create(const Comm* comm, const std::string& path);
  static H5File open(const Comm* comm, const std::string& path, unsigned flags);
  H5Dataset create_dataset(const std::string& name, const std::vector<std::int64_t>& shape, hid_t type);
  void follow(const std::string& name, const std::function<void(hid_t link_access)>& step) const;
  void local(const std::string& object, const std::function<void()>& step) const;
  void together(const std::string& object, const std::function<void()>& step) const;

  const Comm* comm_ = nullptr;
  std::string path_;
  std::optional<std::int64_t> bytes_;  // of a file opened for reading
  H5Handle file_;
};

}  // namespace headspan
