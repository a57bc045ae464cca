#include "fuzz/hdf5_mutation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <vector>

#include <hdf5.h>

namespace headspan {
namespace {

constexpr std::array<std::int64_t, 24> kIntegers{
    0,          1,          2,          3,         4,         5,         7,         8,
    -1,         -2,         127,        128,       255,       256,       32767,     65536,
    2147483647, 2147483648, 4294967296, 1LL << 40, 1LL << 53, 1LL << 62, INT64_MAX, INT64_MIN};
const std::array<double, 14> kNumbers{0,     -0.0, 1,    -1,   0.5,      2,         1e-300,
                                      1e300, 1e9,  1e-9, -0.1, INFINITY, -INFINITY, NAN};
constexpr std::array<const char*, 12> kStrings{"",     "k",      "v",   "q,k",  "0",        "1.0",
                                               "99.0", "latent", "yes", "../x", "\xff\xfe", "a\nb"};
constexpr hsize_t kMostStored = 1 << 16;  // elements of a dataset that are written; larger ones stay empty

/// Takes decisions from bytes; behind their end all are 0.
class Decisions {
 public:
  explicit Decisions(const std::string& bytes) : bytes_(bytes) {}

  bool left() const { return next_ < bytes_.size(); }
  std::size_t byte() { return left() ? static_cast<unsigned char>(bytes_[next_++]) : 0; }
  std::size_t below(std::size_t end) {
    const std::size_t upper = byte();
    return (256 * upper + byte()) % end;
  }
  std::int64_t integer() { return kIntegers[byte() % kIntegers.size()]; }
  double number() { return kNumbers[byte() % kNumbers.size()]; }
  const char* string() { return kStrings[byte() % kStrings.size()]; }

 private:
  const std::string& bytes_;
  std::size_t next_ = 0;
};

herr_t add_name(hid_t, const char* name, const H5O_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->push_back(name);
  return 0;
}

herr_t add_attribute(hid_t, const char* name, const H5A_info_t*, void* names) {
  static_cast<std::vector<std::string>*>(names)->push_back(name);
  return 0;
}

class Mutation {
 public:
  Mutation(hid_t file, Decisions decisions) : file_(file), decisions_(decisions) {
    H5Ovisit(file_, H5_INDEX_NAME, H5_ITER_INC, add_name, &names_);  // the root is "."
  }

  void run() {
    for (int i = 0; i < 4 && decisions_.left(); ++i) change(names_[decisions_.below(names_.size())]);
  }

 private:
  void change(const std::string& name) {
    const std::size_t how = decisions_.byte() % 16;
    switch (how == 15 ? how : how % 8) {
      case 0:
        H5Ldelete(file_, name.c_str(), H5P_DEFAULT);
        break;
      case 1:
        H5Ldelete(file_, name.c_str(), H5P_DEFAULT);
        H5Lcreate_soft(names_[decisions_.below(names_.size())].c_str(), file_, name.c_str(), H5P_DEFAULT,
                       H5P_DEFAULT);
        break;
      case 2:
      case 3:
        return change_attribute(name);
      case 4:
        return replace_dataset(name, H5T_NATIVE_DOUBLE);
      case 5:
        return replace_dataset(name, H5T_NATIVE_INT64);
      case 15:
        return put_elsewhere(name);
      default:
        return change_elements(name);
    }
  }

  /// Deletes an attribute, or gives it a number, an array of numbers, or a text.
  void change_attribute(const std::string& name) {
    std::vector<std::string> attributes;
    H5Aiterate_by_name(file_, name.c_str(), H5_INDEX_NAME, H5_ITER_INC, nullptr, add_attribute, &attributes,
                       H5P_DEFAULT);
    const std::string attribute =
        attributes.empty() ? "new" : attributes[decisions_.below(attributes.size())];
    H5Adelete_by_name(file_, name.c_str(), attribute.c_str(), H5P_DEFAULT);
    switch (decisions_.byte() % 5) {
      case 0:
        break;
      case 1: {
        const std::int64_t value = decisions_.integer();
        write_attribute(name, attribute, H5T_NATIVE_INT64, 0, &value);
        break;
      }
      case 2: {
        const double value = decisions_.number();
        write_attribute(name, attribute, H5T_NATIVE_DOUBLE, 0, &value);
        break;
      }
      case 3: {
        const std::vector<std::int64_t> values(decisions_.byte() % 8, decisions_.integer());
        write_attribute(name, attribute, H5T_NATIVE_INT64, values.size(), values.data());
        break;
      }
      default: {
        const char* const text = decisions_.string();
        const hid_t type = H5Tcopy(H5T_C_S1);
        H5Tset_size(type, std::max<std::size_t>(1, std::strlen(text)));
        write_attribute(name, attribute, type, 0, text);
        H5Tclose(type);
      }
    }
  }

  /// count: 0 for a scalar.
  void write_attribute(const std::string& object, const std::string& name, hid_t type, hsize_t count,
                       const void* value) const {
    const hid_t space = count == 0 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr);
    const hid_t attribute = H5Acreate_by_name(file_, object.c_str(), name.c_str(), type, space, H5P_DEFAULT,
                                              H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(attribute, type, value);
    H5Aclose(attribute);
    H5Sclose(space);
  }

  /// Puts a dataset in place of an object, of the same shape but for one axis. Its attributes go.
  void replace_dataset(const std::string& name, hid_t type) {
    std::vector<hsize_t> shape = shape_of(name);
    const std::size_t how = decisions_.byte() % 4,
                      axis = decisions_.below(std::max<std::size_t>(1, shape.size()));
    const std::int64_t size = decisions_.integer();
    if (how == 1 && !shape.empty()) shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(axis));
    if (how == 2) shape.insert(shape.begin(), 1);
    if (how == 3 && !shape.empty())
      shape[axis] = static_cast<hsize_t>(size < 0 ? 0 : std::min<std::int64_t>(size, 1LL << 40));
    H5Ldelete(file_, name.c_str(), H5P_DEFAULT);
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                layout = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t count = 1;
    for (const hsize_t length : shape) count = length == 0 ? 0 : count > kMostStored ? count : count * length;
    if (count > kMostStored) {
      const std::vector<hsize_t> chunk(shape.size(), 1);
      H5Pset_chunk(layout, static_cast<int>(chunk.size()), chunk.data());
    }
    const hid_t dataset = H5Dcreate2(file_, name.c_str(), type, space, H5P_DEFAULT, layout, H5P_DEFAULT);
    if (count <= kMostStored) {
      const std::vector<double> values(count, decisions_.number());
      H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    }
    H5Dclose(dataset);
    H5Pclose(layout);
    H5Sclose(space);
  }

  /// Puts a link to another file in place of an object, or a dataset whose values are in another file.
  void put_elsewhere(const std::string& name) {
    const std::vector<hsize_t> shape = shape_of(name);
    H5Ldelete(file_, name.c_str(), H5P_DEFAULT);
    if (decisions_.byte() % 2 == 0) {
      H5Lcreate_external("other.h5", "/", file_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
      return;
    }
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr),
                layout = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_external(layout, "other.bin", 0, H5F_UNLIMITED);
    const hid_t dataset =
        H5Dcreate2(file_, name.c_str(), H5T_NATIVE_DOUBLE, space, H5P_DEFAULT, layout, H5P_DEFAULT);
    H5Dclose(dataset);
    H5Pclose(layout);
    H5Sclose(space);
  }

  std::vector<hsize_t> shape_of(const std::string& name) const {
    const hid_t dataset = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    if (dataset < 0) return {2};
    const hid_t space = H5Dget_space(dataset);
    std::vector<hsize_t> shape(static_cast<std::size_t>(std::max(0, H5Sget_simple_extent_ndims(space))));
    H5Sget_simple_extent_dims(space, shape.data(), nullptr);
    H5Sclose(space);
    H5Dclose(dataset);
    return shape;
  }

  /// Gives some numbers of a dataset, one after the other, another value.
  void change_elements(const std::string& name) {
    const hid_t dataset = H5Dopen2(file_, name.c_str(), H5P_DEFAULT);
    if (dataset < 0) return;
    const hid_t space = H5Dget_space(dataset);
    const auto count = static_cast<std::size_t>(std::max<hssize_t>(0, H5Sget_simple_extent_npoints(space)));
    const bool real = decisions_.byte() % 2 == 0;
    const std::size_t first = decisions_.below(std::max<std::size_t>(1, count)),
                      most = 1 + decisions_.byte() % 4;
    const double number = decisions_.number();
    const std::int64_t integer = decisions_.integer();
    std::vector<double> values(count <= kMostStored ? count : 0);
    if (!values.empty() &&
        H5Dread(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0) {
      for (std::size_t i = first; i < std::min(count, first + most); ++i)
        values[i] = real ? number : static_cast<double>(integer);
      H5Dwrite(dataset, H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data());
    }
    H5Sclose(space);
    H5Dclose(dataset);
  }

  hid_t file_;
  Decisions decisions_;
  std::vector<std::string> names_;
};

}  // namespace

void mutate_hdf5(const std::string& path, const std::string& bytes) {
  const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
  Mutation(file, Decisions(bytes)).run();
  H5Fclose(file);
}

}  // namespace headspan
