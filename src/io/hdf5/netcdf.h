// Writer of netCDF-4 files (HDF5 files that h5py, xarray and ncdump open): groups, dimensions (HDF5 dimension
// scales), coordinates, variables with CF attributes. Not a reader, and only a subset of netCDF-4: no
// unlimited dimensions, no compression, no scalar variables.
//
// Objects are named by their path, "r2" or "k/r2"; a group is created with its first object. A variable's
// dimensions are named without a path and looked up in its group, then at the root. Values of variables are
// written at once and collectively; whatever is small (coordinate values, attributes, the scales) is kept
// until `close`, when rank 0 writes it. Variables of double or float get _FillValue = NaN, and every variable
// gets the `coordinates` attribute of CF.
//
// Every member function is collective over the Comm of `create`, with equal arguments on all ranks except for
// the rows that a rank writes, and fails on all ranks (AgreedError, or the end of the job:
// io/hdf5/h5_dataset.h). The Comm must outlive the file.
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

/// Return the attributes that describe a variable; `named` for a dimensionless quantity.
NetcdfAttributes described(const std::string& long_name);
NetcdfAttributes named(const std::string& long_name);

/// Returns the values first, first + 1, .. of a coordinate.
std::vector<std::int64_t> count_from(std::int64_t first, std::int64_t length);

/// Returns CF's attributes flag_masks and flag_meanings for a variable of type T (std::int32_t or
/// std::uint8_t) whose values are sums of these masks.
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
  /// Creates a file, replacing an existing one.
  static NetcdfFile create(const Comm& comm, const std::string& path);

  /// Defines a dimension without a coordinate variable.
  void define_dimension(const std::string& path, std::int64_t length);
  /// Defines a dimension and its coordinate variable of the same name, with a value for each index.
  void define_dimension(const std::string& path, const NetcdfValues& values,
                        const NetcdfAttributes& attributes = {});
  /// Defines an auxiliary coordinate: a further variable that labels `dimension`, as target_layer(target).
  void define_coordinate(const std::string& path, const std::string& dimension, const NetcdfValues& values,
                         const NetcdfAttributes& attributes = {});

  /// Writes a variable of shape [lengths of the dimensions], row-major, of which this rank holds rows
  /// first .. first + count of the first dimension. Throws Error unless the counts of the ranks add up to all
  /// rows.
  template <class T>
  void write(const std::string& path, const std::vector<std::string>& dimensions, const T* rows,
             std::int64_t first, std::int64_t count, const NetcdfAttributes& attributes = {});

  /// Writes a variable whose values rank 0 holds; those of other ranks are ignored.
  template <class T>
  void write_root(const std::string& path, const std::vector<std::string>& dimensions,
                  const std::vector<T>& values, const NetcdfAttributes& attributes = {});

  /// Sets an attribute of a variable, a group ("k") or the file ("/").
  void set_attribute(const std::string& object, const std::string& name, const H5Value& value);

  /// Returns why any write so far was not collective, as H5Dataset does.
  std::uint32_t independence_causes() const { return independence_causes_; }

  /// Completes the file, which is not a netCDF file before.
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
  std::vector<Variable> variables_;              // all but those of the dimensions
  std::vector<std::pair<std::string, NetcdfValues>> values_;
  std::vector<std::pair<std::string, NetcdfAttributes>> attributes_;
  std::uint32_t independence_causes_ = 0;
};

}  // namespace headspan
