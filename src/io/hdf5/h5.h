// The parts of HDF5's C API that its callers here share, made safe: checked calls, owned identifiers, the
// element types that headspan stores. Not a complete binding: everything else is called directly, through
// HS_H5.
#pragma once

#include <cerrno>
#include <cstdint>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include <hdf5.h>

#include "base/error.h"

namespace headspan {

/// An HDF5 call failed. `what()` names the call and HDF5's error stack, outermost error first, and errno's
/// text where the system failed.
class H5Error : public Error {
 public:
  H5Error(const std::string& what, bool is_system) : Error(what), is_system_(is_system) {}

  /// Returns whether a call of the system or of MPI failed, rather than HDF5 because of the file's contents.
  bool is_system() const { return is_system_; }

 private:
  bool is_system_;
};

[[noreturn]] void throw_h5(const char* call, const char* file, int line);

template <class T>
T check_h5(T code, const char* call, const char* file, int line) {
  if (code < 0) throw_h5(call, file, line);
  return code;
}

/// Evaluates an HDF5 call and returns its value (an identifier, a truth value, a count); throws H5Error if
/// that is negative.
#define HS_H5(call) ::headspan::check_h5((errno = 0, (call)), #call, __FILE__, __LINE__)

/// Returns the size of a type in bytes; throws H5Error.
std::size_t h5_type_bytes(hid_t type);

/// Rethrows a failure to read `object` of a file: as InputError, or as Error if the system failed.
[[noreturn]] void throw_unreadable(const H5Error& error, const std::string& path, const std::string& object);

/// Returns the words for errno if it is an error of storage, which MPI-IO hides; empty if not. Local.
std::string storage_error();

/// Stops HDF5 from printing its error stack. Called before a file is opened.
void silence_h5();

/// Returns what HDF5 said when it first could not close an object; empty if it never failed to. Values of
/// the object may be missing in its file, and HDF5 crashes at its own end, in MPI_Finalize.
const std::string& h5_close_failure();

/// Owns an HDF5 identifier. Move-only. The destructor closes it and keeps a failure for h5_close_failure,
/// since it cannot throw.
class H5Handle {
 public:
  using Closer = herr_t (*)(hid_t);

  H5Handle() = default;
  H5Handle(hid_t id, Closer closer) : id_(id), closer_(closer) {}
  ~H5Handle();
  H5Handle(H5Handle&& other) noexcept;
  H5Handle& operator=(H5Handle&& other) noexcept;

  hid_t get() const { return id_; }
  void close();    ///< Closes now; throws H5Error on failure. Does nothing if empty.
  void abandon();  ///< Leaves it open for good, which h5_close_failure then says.

 private:
  hid_t id_ = H5I_INVALID_HID;
  Closer closer_ = nullptr;
};

/// Returns HDF5's native type of T: double, float, std::int64_t, std::int32_t, std::int16_t, std::int8_t,
/// std::uint16_t or std::uint8_t.
template <class T>
hid_t h5_type() {
  if constexpr (std::is_same_v<T, double>) return H5T_NATIVE_DOUBLE;
  if constexpr (std::is_same_v<T, float>) return H5T_NATIVE_FLOAT;
  if constexpr (std::is_same_v<T, std::int64_t>) return H5T_NATIVE_INT64;
  if constexpr (std::is_same_v<T, std::int32_t>) return H5T_NATIVE_INT32;
  if constexpr (std::is_same_v<T, std::int16_t>) return H5T_NATIVE_INT16;
  if constexpr (std::is_same_v<T, std::int8_t>) return H5T_NATIVE_INT8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return H5T_NATIVE_UINT16;
  if constexpr (std::is_same_v<T, std::uint8_t>) return H5T_NATIVE_UINT8;
}

/// Returns the type of a UTF-8 string of `bytes` bytes, at least one, or of any length for H5T_VARIABLE.
H5Handle h5_string_type(std::size_t bytes);

/// Returns an empty property list of HDF5's class `type`.
H5Handle h5_property_list(hid_t type);

/// The same for a class of objects' creation: when an object was made is not kept, so that files of the same
/// content are the same bytes.
H5Handle h5_creation_list(hid_t type);

/// Returns a simple dataspace of these extents, which may be 0.
H5Handle h5_dataspace(const std::vector<std::int64_t>& shape);

/// The value of an attribute.
using H5Value = std::variant<std::string, std::int64_t, double, float, std::vector<std::int64_t>,
                             std::vector<double>, std::vector<std::int32_t>, std::vector<std::uint8_t>>;

}  // namespace headspan
