#include "io/hdf5/h5_string.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/input_file.h"
#include "io/hdf5/h5.h"

namespace headspan {
namespace {

/// HDF5's reference to a string of variable length. The file stores it in 4, 8 and 4 bytes.
struct HeapId {
  std::uint32_t length = 0;
  std::uint64_t address = 0;  ///< of the heap collection that holds it
  std::uint32_t index = 0;    ///< of its object in the collection
};

constexpr std::size_t kHeader = 16;  // bytes of the header of a collection, and of an object in it

using Bytes = std::array<char, kHeader>;

template <class T>
T field(const Bytes& bytes, std::size_t offset) {
  T value{};
  std::memcpy(&value, bytes.data() + offset, sizeof value);
  return value;
}

/// A type conversion for HDF5 that leaves the bytes as they are in the file.
herr_t keep_bytes(hid_t, hid_t, H5T_cdata_t*, std::size_t, std::size_t, std::size_t, void*, void*, hid_t) {
  return 0;
}

HeapId read_heap_id(hid_t attribute, const H5Handle& type) {
  const H5Handle raw(HS_H5(H5Tcreate(H5T_OPAQUE, kHeader)), H5Tclose);
  HS_H5(H5Tregister(H5T_PERS_SOFT, "heap id", type.get(), raw.get(), keep_bytes));
  Bytes bytes{};
  const herr_t code = H5Aread(attribute, raw.get(), bytes.data());
  HS_H5(H5Tunregister(H5T_PERS_SOFT, "heap id", type.get(), raw.get(), keep_bytes));
  check_h5(code, "H5Aread()", __FILE__, __LINE__);
  return {field<std::uint32_t>(bytes, 0), field<std::uint64_t>(bytes, 4), field<std::uint32_t>(bytes, 12)};
}

/// Returns a string of the global heap; nothing if it is not there. A collection consists of "GCOL", version
/// 1, three reserved bytes, its size (8 bytes) and its objects: index (2), reference count (2), four reserved
/// bytes, size (8), data padded to a multiple of 8 bytes. Index 0 is the free space at the end.
std::optional<std::string> find_in_heap(const InputFile& file, std::uint64_t base, const HeapId& id) {
  auto end = static_cast<std::uint64_t>(file.size());
  const auto holds = [&](std::uint64_t offset, std::uint64_t bytes) {
    return offset <= end && bytes <= end - offset;
  };
  const auto header_at = [&](std::uint64_t offset) {
    Bytes bytes{};
    if (holds(offset, kHeader)) file.read(static_cast<std::int64_t>(offset), kHeader, bytes.data());
    return bytes;
  };
  const std::uint64_t begin = base + id.address;
  const Bytes collection = header_at(begin);
  const auto size = field<std::uint64_t>(collection, 8);
  if (std::memcmp(collection.data(), "GCOL\1", 5) != 0 || !holds(begin, size)) return std::nullopt;
  end = begin + size;
  std::uint64_t offset = begin + kHeader;
  for (int object = 0; object <= UINT16_MAX; ++object) {
    const Bytes header = header_at(offset);
    offset += kHeader;
    const auto index = field<std::uint16_t>(header, 0);
    const auto bytes = field<std::uint64_t>(header, 8);
    if (index == 0 || !holds(offset, bytes)) break;
    if (index == id.index) {
      if (id.length > bytes) break;
      std::string text(id.length, '\0');
      file.read(static_cast<std::int64_t>(offset), id.length, text.data());
      return text;
    }
    offset += (bytes + 7) / 8 * 8;
  }
  return std::nullopt;
}

std::optional<std::string> read_variable(const std::string& path, hid_t attribute, const H5Handle& type) {
  const H5Handle file(HS_H5(H5Iget_file_id(attribute)), H5Fclose);
  const H5Handle creation(HS_H5(H5Fget_create_plist(file.get())), H5Pclose);
  std::size_t address_bytes = 0, size_bytes = 0;
  hsize_t base = 0;
  HS_H5(H5Pget_sizes(creation.get(), &address_bytes, &size_bytes));
  HS_H5(H5Pget_userblock(creation.get(), &base));
  if (address_bytes != 8 || size_bytes != 8) return std::nullopt;
  const HeapId id = read_heap_id(attribute, type);
  return id.length == 0 ? "" : find_in_heap(InputFile(path), base, id);
}

}  // namespace

std::optional<std::string> read_h5_string(const std::string& path, hid_t attribute) {
  const H5Handle type(HS_H5(H5Aget_type(attribute)), H5Tclose);
  std::optional<std::string> text;
  if (HS_H5(H5Tis_variable_str(type.get())) > 0) {
    text = read_variable(path, attribute, type);
  } else {
    text.emplace(h5_type_bytes(type.get()), '\0');
    HS_H5(H5Aread(attribute, type.get(), text->data()));
  }
  if (text) text->resize(std::min(text->size(), text->find('\0')));
  return text;
}

}  // namespace headspan
