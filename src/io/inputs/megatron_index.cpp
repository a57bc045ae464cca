#include "io/inputs/megatron_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <iterator>

#include "base/checked.h"

namespace headspan {
namespace {

constexpr std::int64_t kHeaderBytes = 34;  // magic 9, version u64, type u8, sequences u64, documents u64
constexpr char kMagic[] = "MMIDIDX\0";     // nine bytes with the final zero
constexpr std::int64_t kChunk = 1 << 14;   // documents read at once

/// Indexed by the code in the header; code 0 is unused, 6 and 7 are floating point.
constexpr const char* kIdTypes[] = {"", "uint8", "int8", "int16", "int32", "int64", "", "", "uint16"};
constexpr std::int64_t kIdBytes[] = {0, 1, 1, 2, 4, 8, 0, 0, 2};

std::uint64_t little_endian(const char* bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

}  // namespace

void MegatronIndex::refuse(const std::string& wrong) const {
  throw InputError(path(), "", "", wrong, "write the dataset again with Megatron's IndexedDatasetBuilder");
}

template <class T>
std::vector<T> MegatronIndex::read(std::int64_t array_begin, std::int64_t start, std::int64_t count) const {
  constexpr auto size = static_cast<std::int64_t>(sizeof(T));
  std::vector<T> values(to_size(count));
  file_.read(array_begin + start * size, count * size, values.data());
  return values;
}

MegatronIndex::MegatronIndex(const std::string& path) : file_(path) {
  std::array<char, kHeaderBytes> header{};
  if (file_.size() < kHeaderBytes) refuse("is too short for a Megatron index");
  file_.read(0, kHeaderBytes, header.data());
  if (std::memcmp(header.data(), kMagic, 9) != 0) refuse("does not start with Megatron's MMIDIDX");
  if (little_endian(&header[9]) != 1) refuse("has an index version other than 1");
  const auto code = static_cast<unsigned char>(header[17]);
  if (code >= std::size(kIdBytes) || kIdBytes[code] == 0)
    refuse("has data type code " + std::to_string(code) + ", which is not an integer type");
  dtype_ = kIdTypes[code];
  id_bytes_ = kIdBytes[code];

  const std::uint64_t sequences = little_endian(&header[18]);
  const std::uint64_t documents = little_endian(&header[26]);
  const auto file_bytes = static_cast<std::uint64_t>(file_.size());
  if (sequences == 0 || documents < 2) refuse("holds no documents");
  if (sequences > file_bytes || documents > file_bytes) refuse("is shorter than its header says");
  sequences_ = static_cast<std::int64_t>(sequences);
  documents_ = static_cast<std::int64_t>(documents);
  lengths_begin_ = kHeaderBytes;
  pointers_begin_ = lengths_begin_ + 4 * sequences_;
  documents_begin_ = pointers_begin_ + 8 * sequences_;
  const std::int64_t end = documents_begin_ + 8 * documents_;
  if (file_.size() != end && file_.size() != end + sequences_)  // multimodal datasets add a byte per sequence
    refuse("has " + std::to_string(file_.size()) + " bytes where its header asks for " + std::to_string(end));

  const auto last_pointer = read<std::int64_t>(pointers_begin_, sequences_ - 1, 1)[0];
  const auto last_length = read<std::int32_t>(lengths_begin_, sequences_ - 1, 1)[0];
  if (last_pointer < 0 || last_length < 0) refuse("has a negative length or pointer");
  if (__builtin_add_overflow(last_pointer, last_length * id_bytes_, &data_bytes_))
    refuse("has a pointer of " + std::to_string(last_pointer) + " bytes");
  if (read<std::int64_t>(documents_begin_, 0, 1)[0] != 0 ||
      read<std::int64_t>(documents_begin_, documents_ - 1, 1)[0] != sequences_)
    refuse("has documents that do not cover its sequences");
}

std::vector<std::int64_t> MegatronIndex::sequence_starts(std::int64_t first, std::int64_t last,
                                                         std::int64_t position) const {
  const auto lengths = read<std::int32_t>(lengths_begin_, first, last - first);
  const auto pointers = read<std::int64_t>(pointers_begin_, first, last - first);
  std::vector<std::int64_t> starts{position};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0 || pointers[i] != starts.back() * id_bytes_)
      refuse("has sequences that do not follow each other in the .bin");
    starts.push_back(starts.back() + lengths[i]);
  }
  return starts;
}

std::vector<std::int64_t> MegatronIndex::document_ends(std::int64_t limit) const {
  std::vector<std::int64_t> ends;
  std::int64_t position = 0;
  for (std::int64_t first = 0; first + 1 < documents_ && position < limit; first += kChunk) {
    const std::int64_t count = std::min(kChunk, documents_ - 1 - first);
    const auto bounds = read<std::int64_t>(documents_begin_, first, count + 1);
    if (!std::is_sorted(bounds.begin(), bounds.end()) || bounds.front() < 0 || bounds.back() > sequences_)
      refuse("has documents out of order");
    const auto starts = sequence_starts(bounds.front(), bounds.back(), position);
    for (std::size_t document = 1; document < bounds.size() && position < limit; ++document) {
      const std::int64_t end = starts[to_size(bounds[document] - bounds.front())];
      if (end > position) ends.push_back(end);
      position = end;
    }
  }
  return ends;
}

}  // namespace headspan
