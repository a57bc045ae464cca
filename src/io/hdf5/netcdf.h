// Writer of HDF5 files that are netCDF-4 files too, as h5py, xarray and ncdump open them: groups, dimensions
// (HDF5 dimension scales), coordinates, variables with CF attributes. Not a reader, and not all of netCDF-4:
// no unlimited dimension, no compression, no scalar variables.
//
// Objects are named by their path, "r2" or "k/r2"; a group comes into being with its first object. A
// variable's dimensions are named without path and looked up in its own group, then at the root. Values of
// variables are written at once and collectively; whatever is small (coordinate values, attributes, the
// scales) is kept until `close`, when rank 0 writes it alone. Variables of double or float get _FillValue =
// NaN, and every variable the `coordinates` attribute that CF asks.
//
// Every member function is collective over the Comm of `create`, with equal arguments on all ranks apart from
// a slab's rows, and fails on all ranks alike (AgreedError, or the end of the job: io/hdf5/h5_dataset.h). The
// Comm must outlive the file.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "dist/comm/mpi.h"
#include "io/hdf5/h5_file.h"

namespace headspan {

using NetcdfAttributes = std::vector<std::pair<std::string, H5Value>>;
using NetcdfValues = std::variant<std::vector<std::int64_t>, std::vector<double>, std::vector<std::string>>;

/// CF's flag_masks and flag_meanings for a variable of type T (std::int32_t or std::uint8_t) that holds a sum
/// of masks.
template <class T>
NetcdfAttributes flag_attributes(const std::vector<std::pair<T, std::string>>& flags) {
  std::vector<T> masks;
  std::string meanings;
  for (const auto& [mask, meaning] : flags) {
    masks.push_back(mask);
    meanings += (meanings.empty() ? "" : " ") + meaning;
  }
  return {{"flag_masks", masks}, {"flag_meanings", meanings}};
}

class NetcdfFile {
 public:
  /// Replaces what is at `path`.
  static NetcdfFile create(const Comm& comm, const std::string& path);

  /// A dimension that only counts.
  void define_dimension(const std::string& path, std::int64_t length);
  /// A dimension with one value for each index, its coordinate variable of the same name.
  void define_dimension(const std::string& path, const NetcdfValues& values,
                        const NetcdfAttributes& attributes = {});
  /// One more variable along `dimension` that labels it: target_layer(target).
  void define_coordinate(const std::string& path, const std::string& dimension, const NetcdfValues& values,
                         const NetcdfAttributes& attributes = {});

  /// A variable of shape [lengths of the dimensions], row-major; this rank holds rows first .. first + count
  /// of the first dimension. Throws Error unless the ranks' counts add up to all rows.
  template <class T>
  void write(const std::string& path, const std::vector<std::string>& dimensions, const T* rows,
             std::int64_t first, std::int64_t count, const NetcdfAttributes& attributes = {});

  /// The same when rank 0 holds all values; the others' are not looked at.
  template <class T>
  void write_root(const std::string& path, const std::vector<std::string>& dimensions,
                  const std::vector<T>& values, const NetcdfAttributes& attributes = {});

  /// Of a variable, a group ("k") or the file ("/").
  void set_attribute(const std::string& object, const std::string& name, const H5Value& value);

  /// Why any of the writes so far was not collective.
  H5Causes causes() const { return causes_; }

  /// Completes the file. What is destroyed without it is not a netCDF file.
  void close();

 private:
  struct Dimension {
    std::int64_t length;
    bool has_values;
  };
  struct Variable {
    std::string path;
    std::vector<std::string> dimensions;  // paths
    bool is_coordinate;
  };

  NetcdfFile(const Comm& comm, H5File file) : comm_(&comm), file_(std::move(file)) {}
  void make_group_of(const std::string& path);
  std::string find_dimension(const std::string& variable, const std::string& name) const;
  std::int64_t create_values(const std::string& path, const NetcdfValues& values);
  void add_variable(const Variable& variable, const NetcdfAttributes& attributes);
  void finish() const;
  std::string coordinates_of(const Variable& variable) const;

  const Comm* comm_;
  H5File file_;
  std::map<std::string, Dimension> dimensions_;  // by path
  std::vector<Variable> variables_;              // all but the dimensions' own
  std::vector<std::pair<std::string, NetcdfValues>> values_;
  std::vector<std::pair<std::string, NetcdfAttributes>> attributes_;
  H5Causes causes_;
};

}  // namespace headspan
