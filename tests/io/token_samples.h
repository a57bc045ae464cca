// Token files for tests, written byte by byte as the formats are documented.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace headspan {

template <class T>
void append(std::string* bytes, T value) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof value);
}

/// Returns `ids` as T, little-endian, without a header.
template <class T>
std::string raw_ids(const std::vector<std::int64_t>& ids) {
  std::string bytes;
  for (const std::int64_t id : ids) append(&bytes, static_cast<T>(id));
  return bytes;
}

struct MegatronSample {
  std::uint8_t code = 8;  // uint16
  std::vector<std::int32_t> lengths;
  std::vector<std::int64_t> pointers;
  std::vector<std::int64_t> documents;
};

/// Returns the .idx: magic, version 1, type code, both counts, the three arrays.
inline std::string megatron_index(const MegatronSample& sample) {
  std::string bytes("MMIDIDX\0\0", 9);
  append(&bytes, std::uint64_t{1});
  append(&bytes, sample.code);
  append(&bytes, static_cast<std::uint64_t>(sample.lengths.size()));
  append(&bytes, static_cast<std::uint64_t>(sample.documents.size()));
  for (const auto length : sample.lengths) append(&bytes, length);
  for (const auto pointer : sample.pointers) append(&bytes, pointer);
  for (const auto document : sample.documents) append(&bytes, document);
  return bytes;
}

}  // namespace headspan
