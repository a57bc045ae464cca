#include "io/hdf5/h5.h"

#include <cstring>
#include <string_view>
#include <utility>

namespace headspan {
namespace {

struct ErrorStack {
  std::string text;
  bool is_system = false;
};

herr_t collect_description(unsigned, const H5E_error2_t* error, void* stack) {
  auto& joined = *static_cast<ErrorStack*>(stack);
  const std::string description = error->desc ? error->desc : "";
  if (joined.text.find(description) == std::string::npos) joined.text += ": " + description;
  joined.is_system = joined.is_system || description.find("errno = ") != std::string::npos ||
                     error->min_num == H5E_MPI || error->min_num == H5E_MPIERRSTR;
  return 0;
}

std::string close_failure;

}  // namespace

std::string storage_error() {
  switch (const int code = errno) {
    case EACCES:
    case EDQUOT:
    case EFBIG:
    case EIO:
    case ENOLCK:
    case ENOSPC:
    case EROFS:
    case ESTALE:
    case ETIMEDOUT:
      return std::strerror(code);
    default:  // MPI may leave another one behind, from looking for the text of its own message
      return "";
  }
}

void throw_h5(const char* call, const char* file, int line) {
  const std::string cause = storage_error();
  ErrorStack stack;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, collect_description, &stack);
  if (!cause.empty()) {  // MPI-IO may call a short write a success
    if (stack.text.find(cause) == std::string::npos) stack.text += ": " + cause;
    stack.is_system = true;
  }
  const std::string function(call, std::string_view(call).find('('));
  throw H5Error("HDF5" + stack.text + " in " + function + " (" + file + ":" + std::to_string(line) + ")",
                stack.is_system);
}

std::size_t h5_type_bytes(hid_t type) {
  const std::size_t bytes = H5Tget_size(type);
  if (bytes == 0) throw_h5("H5Tget_size()", __FILE__, __LINE__);
  return bytes;
}

void throw_unreadable(const H5Error& error, const std::string& path, const std::string& object) {
  if (error.is_system()) throw Error(path + ": " + object + (object.empty() ? "" : ": ") + error.what());
  throw InputError(path, object, "", std::string("cannot be read as HDF5 (") + error.what() + ")",
                   "the file is damaged, cut short or something else");
}

void silence_h5() { HS_H5(H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr)); }

const std::string& h5_close_failure() { return close_failure; }

H5Handle::~H5Handle() {
  if (id_ < 0 || H5Iis_valid(id_) <= 0) return;
  try {
    close();
  } catch (const H5Error&) {  // kept
  }
}

H5Handle::H5Handle(H5Handle&& other) noexcept { *this = std::move(other); }

H5Handle& H5Handle::operator=(H5Handle&& other) noexcept {
  std::swap(id_, other.id_);
  std::swap(closer_, other.closer_);
  return *this;
}

void H5Handle::close() {
  if (id_ < 0) return;
  try {
    HS_H5(closer_(std::exchange(id_, H5I_INVALID_HID)));
  } catch (const H5Error& e) {
    if (close_failure.empty()) close_failure = e.what();
    throw;
  }
}

void H5Handle::abandon() {
  if (id_ < 0) return;
  id_ = H5I_INVALID_HID;
  if (close_failure.empty()) close_failure = "a file is left open";
}

H5Handle h5_string_type(std::size_t bytes) {
  H5Handle type(HS_H5(H5Tcopy(H5T_C_S1)), H5Tclose);
  HS_H5(H5Tset_size(type.get(), bytes));
  HS_H5(H5Tset_cset(type.get(), H5T_CSET_UTF8));
  return type;
}

H5Handle h5_property_list(hid_t type) { return {HS_H5(H5Pcreate(type)), H5Pclose}; }

H5Handle h5_creation_list(hid_t type) {
  H5Handle creation = h5_property_list(type);
  HS_H5(H5Pset_obj_track_times(creation.get(), false));
  return creation;
}

H5Handle h5_dataspace(const std::vector<std::int64_t>& shape) {
  const std::vector<hsize_t> extents(shape.begin(), shape.end());
  return {HS_H5(H5Screate_simple(static_cast<int>(extents.size()), extents.data(), nullptr)), H5Sclose};
}

}  // namespace headspan
