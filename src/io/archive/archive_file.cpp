#include "io/archive/archive_file.h"

#include <array>
#include <cstring>

#include <zlib.h>

#include "base/checked.h"
#include "base/printable.h"
#include "io/json_text.h"
#include "io/schema.h"

namespace headspan {
namespace {

using nlohmann::json;

constexpr const char* kMagic = "hsarchiv";
constexpr std::int64_t kMagicBytes = 8, kPairBytes = 8;
constexpr const char* kSchema = "1.0";
constexpr std::int64_t kMostHeaderBytes = 100'000'000;
constexpr std::int64_t kMostSize = std::int64_t{1} << 40;
constexpr std::int64_t kMostStep = 4096;  // sixteenths of an octave: beyond what float32 can hold
constexpr const char* kRight = "give an archive as headspan archive encode wrote it";

std::uint32_t checksum_of(const void* bytes, std::size_t size) {
  return static_cast<std::uint32_t>(crc32_z(0, static_cast<const Bytef*>(bytes), size));
}

/// A number of bytes and their checksum, as they stand before the bytes.
std::string pair_of(const void* bytes, std::size_t size) {
  if (size > UINT32_MAX) throw Error("a block of an archive has more than 2^32 bytes");
  std::string text;
  for (const std::uint32_t number : {static_cast<std::uint32_t>(size), checksum_of(bytes, size)})
    for (int byte = 0; byte < 4; ++byte) text.push_back(static_cast<char>(number >> (8 * byte)));
  return text;
}

struct Pair {
  std::uint32_t bytes, checksum;
};

Pair read_pair(const InputFile& file, std::int64_t offset) {
  std::array<std::uint8_t, kPairBytes> raw;
  file.read(offset, kPairBytes, raw.data());
  const auto number = [&](std::size_t at) {
    return static_cast<std::uint32_t>(raw[at] | raw[at + 1] << 8 | raw[at + 2] << 16) |
           std::uint32_t{raw[at + 3]} << 24;
  };
  return {number(0), number(4)};
}

bool begins_as_archive(const InputFile& file) {
  std::array<char, kMagicBytes> magic{};
  if (file.size() >= kMagicBytes) file.read(0, kMagicBytes, magic.data());
  return std::memcmp(magic.data(), kMagic, magic.size()) == 0;
}

std::string header_text(const ArchiveHeader& header) {
  return json{{"headspan_archive", kSchema},
              {"codec_sha256", header.codec_sha256},
              {"config_sha256", header.config_sha256},
              {"weights_digest", header.weights_digest},
              {"layers", header.layers},
              {"kv_heads", header.kv_heads},
              {"head_size", header.head_size},
              {"tokens", header.tokens},
              {"first_position", header.first_position},
              {"exact", header.exact},
              {"type", word_of(element_words(), header.type)},
              {"step", header.step},
              {"blocks", header.blocks}}
      .dump();
}

/// Reads the fields of a header.
class HeaderReader {
 public:
  HeaderReader(const std::string& path, const json& object) : path_(path), object_(object) {}

  ArchiveHeader read() const {
    ArchiveHeader header;
    header.schema = text("headspan_archive");
    check_schema(path_, "headspan_archive", header.schema, "archive");
    header.codec_sha256 = text("codec_sha256");
    header.config_sha256 = text("config_sha256");
    header.weights_digest = text("weights_digest");
    header.layers = number("layers", 1, kMostSize);
    header.kv_heads = number("kv_heads", 1, kMostSize);
    header.head_size = number("head_size", 1, kMostSize);
    header.tokens = number("tokens", 0, kMostSize);
    header.first_position = number("first_position", 0, kMostSize);
    header.step = number("step", -kMostStep, kMostStep);
    header.blocks = number("blocks", 1, kMostSize);
    const std::optional<ElementType> type = value_of(element_words(), text("type"));
    if (!type) refuse("type", text("type"), "is not " + joined(element_words()));
    header.type = *type;
    header.exact = exact(header.tokens);
    return header;
  }

 private:
  [[noreturn]] void refuse(const char* field, const std::string& value, const std::string& what) const {
    throw InputError(path_, field, printable(value), what, kRight);
  }

  const json& field(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) refuse(name, "", "is missing");
    return *found;
  }

  std::string text(const char* name) const {
    const json& value = field(name);
    if (!value.is_string()) refuse(name, value.dump(), "is not a text");
    return value.get<std::string>();
  }

  std::int64_t integer(const char* name, const json& value, std::int64_t lowest, std::int64_t highest) const {
    const bool fits = value.is_number_integer() &&
                      (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
    if (!fits || value.get<std::int64_t>() < lowest || value.get<std::int64_t>() > highest)
      refuse(name, value.dump(),
             "is not one of " + std::to_string(lowest) + " to " + std::to_string(highest));
    return value.get<std::int64_t>();
  }

  std::int64_t number(const char* name, std::int64_t lowest, std::int64_t highest) const {
    return integer(name, field(name), lowest, highest);
  }

  std::vector<std::int64_t> exact(std::int64_t tokens) const {
    const json& list = field("exact");
    if (!list.is_array()) refuse("exact", list.dump(), "is not a list");
    std::vector<std::int64_t> exact;
    for (const json& token : list)
      exact.push_back(integer("exact", token, exact.empty() ? 0 : exact.back() + 1, tokens - 1));
    return exact;
  }

  const std::string& path_;
  const json& object_;
};

}  // namespace

ArchiveWriter::ArchiveWriter(const std::string& path, const ArchiveHeader& header)
    : file_(path), left_(header.blocks) {
  const std::string text = header_text(header);
  if (static_cast<std::int64_t>(text.size()) > kMostHeaderBytes)
    throw Error(path + ": too many exact tokens");
  file_.append(kMagic + pair_of(text.data(), text.size()) + text);
}

void ArchiveWriter::append(const std::vector<std::uint8_t>& block) {
  HS_ASSERT(left_ > 0);
  --left_;
  file_.append(pair_of(block.data(), block.size()) + std::string(block.begin(), block.end()));
}

void ArchiveWriter::finish() {
  HS_ASSERT(left_ == 0);
  file_.close();
}

bool ArchiveReader::is_archive(const std::string& path) { return begins_as_archive(InputFile(path)); }

ArchiveReader::ArchiveReader(const std::string& path) : file_(path) {
  const auto refuse = [&](const char* what) { throw InputError(path, "", "", what, kRight); };
  const std::int64_t size = file_.size();
  if (!begins_as_archive(file_)) refuse("is no archive");
  if (size < kMagicBytes + kPairBytes) refuse("is cut off");
  std::int64_t offset = kMagicBytes + kPairBytes;
  const Pair of_header = read_pair(file_, kMagicBytes);
  if (of_header.bytes > kMostHeaderBytes || of_header.bytes > size - offset) refuse("is cut off");
  std::string text(of_header.bytes, ' ');
  file_.read(offset, of_header.bytes, text.data());
  if (checksum_of(text.data(), text.size()) != of_header.checksum) refuse("has a damaged header");
  const json object = parse_json(path, text, kRight);
  if (!object.is_object()) refuse("has no header");
  header_ = HeaderReader(path, object).read();
  offset += of_header.bytes;
  while (offset < size) {
    if (size - offset < kPairBytes) refuse("is cut off");
    const Pair pair = read_pair(file_, offset);
    offset += kPairBytes;
    if (pair.bytes > size - offset) refuse("is cut off");
    blocks_.push_back({offset, pair.bytes, pair.checksum});
    offset += pair.bytes;
  }
  if (static_cast<std::int64_t>(blocks_.size()) != header_.blocks)
    refuse("has not as many blocks as its header says");
}

std::vector<std::uint8_t> ArchiveReader::read(std::int64_t block) const {
  const Entry& entry = blocks_.at(to_size(block));
  std::vector<std::uint8_t> bytes(entry.bytes);
  file_.read(entry.offset, entry.bytes, bytes.data());
  if (checksum_of(bytes.data(), bytes.size()) != entry.checksum)
    throw InputError(path(), "block", std::to_string(block), "is damaged",
                     "its checksum does not agree; encode again");
  return bytes;
}

}  // namespace headspan
