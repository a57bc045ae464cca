#include "io/hdf5/netcdf.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>
#include <type_traits>

#include <hdf5_hl.h>

#include "base/checked.h"
#include "dist/comm/agreement.h"

namespace headspan {
namespace {

/// Returns "k/" for "k/r2" and "" for "r2".
std::string group_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Returns netCDF's label of a dimension without a coordinate variable.
std::string bare_dimension_label(std::int64_t length) {
  char text[80];
  std::snprintf(text, sizeof text, "This is a netCDF dimension but not a netCDF variable.%10lld",
                static_cast<long long>(length));
  return text;
}

void write_values(H5File& file, const std::string& path, const NetcdfValues& values) {
  const auto write = [&](const auto& list) {
    if constexpr (std::is_same_v<decltype(list), const std::vector<std::string>&>)
      file.write_strings(path, list);
    else
      file.open_dataset(path).write_rows(list.data(), 0, static_cast<std::int64_t>(list.size()));
  };
  std::visit(write, values);
}

}  // namespace

NetcdfAttributes described(const std::string& long_name) { return {{"long_name", long_name}}; }

NetcdfAttributes named(const std::string& long_name) {
  return {{"long_name", long_name}, {"units", std::string("1")}};
}

std::vector<std::int64_t> count_from(std::int64_t first, std::int64_t length) {
  std::vector<std::int64_t> values(to_size(length));
  std::iota(values.begin(), values.end(), first);
  return values;
}

NetcdfFile NetcdfFile::create(const Comm& comm, const std::string& path) {
  return NetcdfFile(comm, H5File::create(comm, path));
}

void NetcdfFile::make_group_of(const std::string& path) {
  for (auto slash = path.find('/'); slash != std::string::npos; slash = path.find('/', slash + 1)) {
    const std::string group = path.substr(0, slash);
    if (!file_.has(group)) file_.create_group(group);
  }
}

std::string NetcdfFile::find_dimension(const std::string& variable, const std::string& name) const {
  std::string in_group = group_of(variable) + name;
  if (dimensions_.count(in_group) > 0) return in_group;
  HS_ASSERT(dimensions_.count(name) > 0);
  return name;
}

void NetcdfFile::define_dimension(const std::string& path, std::int64_t length) {
  make_group_of(path);
  file_.create_dataset<float>(path, {length});
  dimensions_.insert({path, {length, false}});
}

void NetcdfFile::define_dimension(const std::string& path, const NetcdfValues& values,
                                  const NetcdfAttributes& attributes) {
  make_group_of(path);
  dimensions_.insert({path, {create_values(path, values), true}});
  attributes_.emplace_back(path, attributes);
}

void NetcdfFile::define_coordinate(const std::string& path, const std::string& dimension,
                                   const NetcdfValues& values, const NetcdfAttributes& attributes) {
  make_group_of(path);
  const std::string scale = find_dimension(path, dimension);
  HS_ASSERT(create_values(path, values) == dimensions_.at(scale).length);
  add_variable({path, {scale}, true}, attributes);
}

/// Creates the dataset, stores the values for `finish`, and returns their number.
std::int64_t NetcdfFile::create_values(const std::string& path, const NetcdfValues& values) {
  values_.emplace_back(path, values);
  const auto create = [&](const auto& list) {
    using T = typename std::decay_t<decltype(list)>::value_type;
    const auto count = static_cast<std::int64_t>(list.size());
    if constexpr (std::is_same_v<T, std::string>)
      file_.create_strings(path, count);
    else
      file_.create_dataset<T>(path, {count});
    return count;
  };
  return std::visit(create, values);
}

void NetcdfFile::add_variable(const Variable& variable, const NetcdfAttributes& attributes) {
  variables_.push_back(variable);
  attributes_.emplace_back(variable.path, attributes);
}

template <class T>
void NetcdfFile::write(const std::string& path, const std::vector<std::string>& dimensions, const T* rows,
                       std::int64_t first, std::int64_t count, const NetcdfAttributes& attributes) {
  make_group_of(path);
  Variable variable{path, {}, false};
  std::vector<std::int64_t> shape;
  for (const std::string& name : dimensions) {
    variable.dimensions.push_back(find_dimension(path, name));
    shape.push_back(dimensions_.at(variable.dimensions.back()).length);
  }
  std::int64_t written = count;
  comm_->sum(&written, 1);
  if (written != shape.at(0))
    throw Error(file_.path() + ": " + path + ": " + std::to_string(written) +
                " rows given for a dimension of " + std::to_string(shape[0]));
  H5Dataset dataset = file_.create_dataset<T>(path, shape);
  dataset.write_rows(rows, first, count);
  independence_causes_ |= dataset.independence_causes();

  NetcdfAttributes all;
  if constexpr (std::is_floating_point_v<T>)
    all.emplace_back("_FillValue", std::numeric_limits<T>::quiet_NaN());
  all.insert(all.end(), attributes.begin(), attributes.end());
  add_variable(variable, all);
}

template <class T>
void NetcdfFile::write_root(const std::string& path, const std::vector<std::string>& dimensions,
                            const std::vector<T>& values, const NetcdfAttributes& attributes) {
  std::int64_t size = 1;
  for (const std::string& name : dimensions) size *= dimensions_.at(find_dimension(path, name)).length;
  HS_ASSERT(!comm_->is_root() || static_cast<std::int64_t>(values.size()) == size);
  const std::int64_t rows = dimensions_.at(find_dimension(path, dimensions.at(0))).length;
  write(path, dimensions, values.data(), 0, comm_->is_root() ? rows : 0, attributes);
}

void NetcdfFile::set_attribute(const std::string& object, const std::string& name, const H5Value& value) {
  attributes_.push_back({object, {{name, value}}});
}

void NetcdfFile::close() {
  for (const auto& [object, list] : attributes_)
    if (object != "/") make_group_of(object + "/");
  file_.close();
  agree(*comm_, [&] {
    if (!comm_->is_root()) return;
    try {
      finish();
    } catch (const H5Error& e) {
      throw Error(file_.path() + ": " + e.what());
    }
  });
}

/// Writes the stored values, dimension scales and attributes. Rank 0 only, after all ranks have closed the
/// file.
void NetcdfFile::finish() const {
  H5File file = H5File::edit(file_.path());
  for (const auto& [path, values] : values_) write_values(file, path, values);
  for (const auto& [path, dimension] : dimensions_) {
    const std::string label = dimension.has_values ? name_of(path) : bare_dimension_label(dimension.length);
    HS_H5(H5DSset_scale(file.open_object(path).get(), label.c_str()));
  }
  for (const Variable& variable : variables_) {
    const H5Handle dataset = file.open_object(variable.path);
    for (std::size_t i = 0; i < variable.dimensions.size(); ++i)
      HS_H5(H5DSattach_scale(dataset.get(), file.open_object(variable.dimensions[i]).get(),
                             static_cast<unsigned>(i)));
  }
  for (const auto& [object, list] : attributes_)
    for (const auto& [name, value] : list) file.write_attribute(object, name, value);
  for (const Variable& variable : variables_) {
    const std::string coordinates = coordinates_of(variable);
    if (!coordinates.empty()) file.write_attribute(variable.path, "coordinates", coordinates);
  }
  file.close();
}

/// Returns the names of the auxiliary coordinates that are in the variable's group and along one of its
/// dimensions, in the order of their definition.
std::string NetcdfFile::coordinates_of(const Variable& variable) const {
  std::string names;
  if (variable.is_coordinate) return names;
  const auto& dimensions = variable.dimensions;
  for (const Variable& other : variables_) {
    if (!other.is_coordinate || group_of(other.path) != group_of(variable.path)) continue;
    if (std::find(dimensions.begin(), dimensions.end(), other.dimensions[0]) == dimensions.end()) continue;
    names += (names.empty() ? "" : " ") + name_of(other.path);
  }
  return names;
}

#define HS_INSTANTIATE(T)                                                                        \
  template void NetcdfFile::write(const std::string&, const std::vector<std::string>&, const T*, \
                                  std::int64_t, std::int64_t, const NetcdfAttributes&);          \
  template void NetcdfFile::write_root(const std::string&, const std::vector<std::string>&,      \
                                       const std::vector<T>&, const NetcdfAttributes&);
HS_INSTANTIATE(double)
HS_INSTANTIATE(float)
HS_INSTANTIATE(std::int64_t)
HS_INSTANTIATE(std::int32_t)
HS_INSTANTIATE(std::uint8_t)
#undef HS_INSTANTIATE

}  // namespace headspan
