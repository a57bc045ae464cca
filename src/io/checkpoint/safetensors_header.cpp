#include "io/checkpoint/safetensors_header.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/printable.h"

namespace headspan {
namespace {

constexpr const char* kDamaged = "the file is damaged: fetch or write it again";

/// Receives the JSON header token by token and builds only the tensors. It refuses at once what the format
/// does not allow at a position, so that nesting never goes deeper than a tensor's lists.
class HeaderReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& file, std::int64_t data_bytes) : file_(file), data_bytes_(data_bytes) {}

  TensorMap take() { return std::move(tensors_); }

  bool null() override { refuse("null"); }
  bool boolean(bool value) override { refuse(value ? "true" : "false"); }
  bool number_integer(std::int64_t value) override { refuse(std::to_string(value)); }
  bool number_float(double, const std::string& text) override { refuse(text); }
  bool binary(nlohmann::json::binary_t&) override { refuse("binary"); }

  bool number_unsigned(std::uint64_t value) override {
    if (level_ != Level::kList) refuse(std::to_string(value));
    list().push_back(value);
    return true;
  }

  bool string(std::string& value) override {
    if (level_ == Level::kMetadata) return true;
    if (level_ != Level::kTensor || field_ != "dtype") refuse(value);
    if (dtype_bits(value) == 0)
      throw InputError(file_, where(), printable(value), "is not a dtype of safetensors",
                       "F32, F16 or BF16 are usual");
    dtype_ = value;
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ == Level::kOutside) {
      level_ = Level::kTop;
    } else if (level_ == Level::kTop) {
      level_ = name_ == "__metadata__" ? Level::kMetadata : Level::kTensor;
      seen_.clear();
      shape_.clear();
      offsets_.clear();
    } else {
      refuse("an object");
    }
    return true;
  }

  bool key(std::string& value) override {
    (level_ == Level::kTop ? name_ : field_) = value;
    if (level_ == Level::kTensor && value != "dtype" && value != "shape" && value != "data_offsets")
      throw InputError(file_, where(), "", "is no field of a tensor", "dtype, shape and data_offsets are");
    if (!is_new(value)) throw InputError(file_, where(), "", "is given twice", kDamaged);
    return true;
  }

  bool end_object() override {
    if (level_ == Level::kTensor) tensors_.emplace(name_, finished_tensor());
    level_ = level_ == Level::kTop ? Level::kOutside : Level::kTop;
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != Level::kTensor || field_ == "dtype") refuse("a list");
    level_ = Level::kList;
    return true;
  }

  bool end_array() override {
    level_ = Level::kTensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    std::string reason = error.what();
    const std::size_t prefix = reason.find(": ");
    if (prefix != std::string::npos) reason.erase(0, prefix + 2);
    reason.erase(std::min(reason.find(';'), reason.size()));
    throw InputError(
        file_, "header", "",
        "is not valid JSON at its byte " + std::to_string(position) + " (" + printable(reason) + ")",
        kDamaged);
  }

 private:
  enum class Level { kOutside, kTop, kMetadata, kTensor, kList };  // the innermost open object or list

  bool is_new(const std::string& key) {
    if (level_ != Level::kTop) return seen_.insert(key).second;
    if (key == "__metadata__") return !std::exchange(has_metadata_, true);
    return tensors_.count(key) == 0;
  }

  std::vector<std::uint64_t>& list() { return field_ == "shape" ? shape_ : offsets_; }

  std::string tensor() const { return "tensor '" + printable(name_) + "'"; }

  /// Names the last key, for a message.
  std::string where() const {
    if (level_ == Level::kTop) return name_ == "__metadata__" ? name_ : tensor();
    return (level_ == Level::kMetadata ? "__metadata__" : tensor()) + " " + printable(field_);
  }

  /// Refuses a value of a kind that does not belong at its position.
  [[noreturn]] void refuse(const std::string& value) const {
    const char* right = "a non-negative integer of 64 bits is expected";
    if (level_ == Level::kTop)
      right = name_ == "__metadata__" ? "an object of texts is expected"
                                      : "an object of dtype, shape and data_offsets is expected";
    else if (level_ == Level::kMetadata || (level_ == Level::kTensor && field_ == "dtype"))
      right = "a text is expected";
    else if (level_ == Level::kTensor)
      right = "a list of non-negative integers is expected";
    throw InputError(file_, where(), printable(value), "is of the wrong kind", right);
  }

  /// Returns the bytes that the dtype and the shape ask for.
  std::uint64_t needed_bytes() const {
    std::uint64_t bits = 1;
    bool overflow = false;
    for (const std::uint64_t dimension : shape_) overflow |= __builtin_mul_overflow(bits, dimension, &bits);
    overflow |= __builtin_mul_overflow(bits, static_cast<std::uint64_t>(dtype_bits(dtype_)), &bits);
    if (overflow)
      throw InputError(file_, tensor() + " shape", printable(shape_), "overflows 64 bits", kDamaged);
    if (bits % 8 != 0)
      throw InputError(file_, tensor() + " shape", printable(shape_),
                       "does not fill whole bytes with " + dtype_, kDamaged);
    return bits / 8;
  }

  TensorEntry finished_tensor() const {
    for (const char* field : {"dtype", "shape", "data_offsets"})
      if (seen_.count(field) == 0)
        throw InputError(file_, tensor(), "", std::string("has no ") + field, kDamaged);
    const std::uint64_t needed = needed_bytes();
    const auto wrong_offsets = [&](const std::string& wrong) {
      return InputError(file_, tensor() + " data_offsets", printable(offsets_), wrong, kDamaged);
    };
    if (offsets_.size() != 2) throw wrong_offsets("are not two numbers");
    const std::uint64_t begin = offsets_[0], end = offsets_[1];
    if (begin > end) throw wrong_offsets("end before they begin");
    if (end > static_cast<std::uint64_t>(data_bytes_))
      throw wrong_offsets("reach beyond the data, which has " + std::to_string(data_bytes_) + " bytes");
    if (end - begin != needed)
      throw wrong_offsets("span " + std::to_string(end - begin) + " bytes where " + dtype_ + " " +
                          printable(shape_) + " needs " + std::to_string(needed));

    TensorEntry entry{dtype_, {}, static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)};
    for (const std::uint64_t dimension : shape_) {
      if (dimension > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
        throw InputError(file_, tensor() + " shape", printable(shape_), "has a dimension above 2^63 - 1",
                         kDamaged);
      entry.shape.push_back(static_cast<std::int64_t>(dimension));
    }
    return entry;
  }

  const std::string& file_;
  const std::int64_t data_bytes_;
  Level level_ = Level::kOutside;
  std::string name_, field_;    // the last key of the header, and of the object within it
  std::set<std::string> seen_;  // keys of the open object within the header
  bool has_metadata_ = false;
  std::string dtype_;
  std::vector<std::uint64_t> shape_, offsets_;
  TensorMap tensors_;
};

/// Throws InputError unless the tensors cover every byte of the data exactly once.
void check_coverage(const std::string& file, const TensorMap& tensors, std::int64_t data_bytes) {
  std::vector<const TensorMap::value_type*> order;
  order.reserve(tensors.size());
  for (const auto& tensor : tensors) order.push_back(&tensor);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    return std::pair(a->second.begin, a->second.end) < std::pair(b->second.begin, b->second.end);
  });
  std::int64_t covered = 0;
  for (const auto* tensor : order) {
    const auto& [name, entry] = *tensor;
    if (entry.begin != covered)
      throw InputError(file, "tensor '" + printable(name) + "' data_offsets",
                       printable(std::vector<std::int64_t>{entry.begin, entry.end}),
                       (entry.begin < covered ? "overlap another tensor, which ends at byte "
                                              : "leave a hole behind byte ") +
                           std::to_string(covered),
                       kDamaged);
    covered = entry.end;
  }
  if (covered != data_bytes)
    throw InputError(file, "data", "",
                     "has " + std::to_string(data_bytes - covered) + " bytes behind the last tensor",
                     kDamaged);
}

}  // namespace

std::int64_t dtype_bits(std::string_view dtype) {
  static constexpr std::pair<std::string_view, std::int64_t> kBits[] = {
      {"BOOL", 8},    {"F4", 4},          {"F6_E2M3", 6},     {"F6_E3M2", 6}, {"U8", 8},   {"I8", 8},
      {"F8_E5M2", 8}, {"F8_E4M3", 8},     {"F8_E8M0", 8},     {"I16", 16},    {"U16", 16}, {"F16", 16},
      {"BF16", 16},   {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"I32", 32},    {"U32", 32}, {"F32", 32},
      {"C64", 64},    {"F64", 64},        {"I64", 64},        {"U64", 64}};
  for (const auto& [name, bits] : kBits)
    if (name == dtype) return bits;
  return 0;
}

std::int64_t safetensors_header_length(const std::string& file, std::string_view start,
                                       std::int64_t file_size) {
  constexpr std::uint64_t kLongest = 100'000'000;
  if (file_size < 8)
    throw InputError(file, "file size", std::to_string(file_size),
                     "is less than the 8 bytes a safetensors file begins with", kDamaged);
  HS_ASSERT(start.size() >= 8);
  std::uint64_t length = 0;
  for (std::size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(start[i]);
  if (length > kLongest)
    throw InputError(file, "header length", std::to_string(length),
                     "is above 100000000, the most safetensors allows", "is it a safetensors file?");
  if (length > static_cast<std::uint64_t>(file_size) - 8)
    throw InputError(file, "header length", std::to_string(length),
                     "reaches beyond the end of the file, which has " + std::to_string(file_size) + " bytes",
                     kDamaged);
  return static_cast<std::int64_t>(length);
}

TensorMap parse_safetensors_header(const std::string& file, std::string_view start, std::int64_t file_size) {
  const std::int64_t length = safetensors_header_length(file, start, file_size);
  HS_ASSERT(static_cast<std::int64_t>(start.size()) >= 8 + length);
  const std::string_view header = start.substr(8, static_cast<std::size_t>(length));
  const std::size_t first = header.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || header[first] != '{')
    throw InputError(file, "header", "", "does not begin with '{'", "is it a safetensors file?");
  if (header.find('\0') != std::string_view::npos)  // the JSON parser would end there
    throw InputError(file, "header", "", "holds a NUL byte", kDamaged);

  HeaderReader reader(file, file_size - 8 - length);
  nlohmann::json::sax_parse(header.begin(), header.end(), &reader);
  TensorMap tensors = reader.take();
  check_coverage(file, tensors, file_size - 8 - length);
  return tensors;
}

}  // namespace headspan
