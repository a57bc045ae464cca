// HDF5's C API made safe to call: checked calls, owned identifiers, the element types that headspan stores.
// Not a binding of all of HDF5: what a file needs beyond io/hdf5/h5_dataset.h and io/hdf5/h5_file.h is called
// directly, through HS_H5.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include <hdf5.h>

#include "base/error.h"

namespace headspan {

/// HDF5 itself failed. `what()`: the call and HDF5's own error stack, outermost complaint first.
class H5Error : public Error {
 public:
  H5Error(const std::string& what, bool of_system) : Error(what), of_system_(of_system) {}

  /// Whether a call of the system or of MPI failed, and not HDF5 over what stands in the file.
  bool of_system() const { return of_system_; }

 private:
  bool of_system_;
};

[[noreturn]] void throw_h5(const char* call, const char* file, int line);

template <class T>
T check_h5(T code, const char* call, const char* file, int line) {
  if (code < 0) throw_h5(call, file, line);
  return code;
}

/// The value of an HDF5 call (an identifier, a truth value, a count); throws H5Error when it is negative.
#define HS_H5(call) ::headspan::check_h5((call), #call, __FILE__, __LINE__)

/// The size of a type in bytes; throws H5Error.
std::size_t h5_type_bytes(hid_t type);

/// Throws what a failure means for who reads `object` of a file: InputError, or Error where the system
/// failed.
[[noreturn]] void throw_unreadable(const H5Error& error, const std::string& path, const std::string& object);

/// Stops HDF5 from printing its error stack on its own; what opens a file calls it.
void silence_h5();

/// Owner of one HDF5 identifier. Move-only. The destructor closes it and prints a failure, for it cannot
/// throw.
class H5Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  H5Handle() = default;
  H5Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  ~H5Handle();
  H5Handle(H5Handle&& other) noexcept;
  H5Handle& operator=(H5Handle&& other) noexcept;

  hid_t get() const { return id_; }
  void close();  ///< Closes now and throws H5Error on failure. Does nothing on an empty handle.

 private:
  hid_t id_ = H5I_INVALID_HID;
  Closer closer_ = nullptr;
};

/// HDF5's native type of T: one of double, float, std::int64_t, std::int32_t, std::uint8_t.
template <class T>
hid_t h5_type();

/// UTF-8 text of `bytes` bytes, at least one, or of any length with H5T_VARIABLE.
H5Handle h5_string_type(std::size_t bytes);

/// An empty property list of HDF5's class `type`.
H5Handle h5_property_list(hid_t type);

/// A simple dataspace of these extents; extents may be 0.
H5Handle h5_dataspace(const std::vector<std::int64_t>& shape);

/// The value of an attribute.
using H5Value = std::variant<std::string, std::int64_t, double, float, std::vector<std::int64_t>,
                             std::vector<double>, std::vector<std::int32_t>, std::vector<std::uint8_t>>;

}  // namespace headspan
