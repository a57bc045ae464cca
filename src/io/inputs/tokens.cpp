#include "io/inputs/tokens.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "base/checked.h"
#include "base/error.h"
#include "base/printable.h"
#include "base/sha256.h"

namespace headspan {
namespace {

constexpr std::string_view kNpyMagic = "\x93NUMPY";
constexpr std::int64_t kLargestNpyHeader = 1 << 16;
constexpr std::int64_t kChunk = 1 << 20;  // ids read at once
constexpr std::int64_t kUint16Ids = 1 << 16;
constexpr std::int64_t kLargestVocabulary = 1 << 18;  // Gemma's, the largest in use

const std::array<TokenType, 8>& token_types() {
  static const std::array<TokenType, 8> types{{{"uint8", 1, false},
                                               {"int8", 1, true},
                                               {"uint16", 2, false},
                                               {"int16", 2, true},
                                               {"uint32", 4, false},
                                               {"int32", 4, true},
                                               {"uint64", 8, false},
                                               {"int64", 8, true}}};
  return types;
}

struct NpyHeader {
  std::string dtype;
  std::int64_t count = 0;
  std::int64_t data_begin = 0;
};

/// Returns what is between `open` and `close` after 'key' in an NPY header, the text of a Python dictionary.
std::string npy_value(const std::string& header, const std::string& key, char open, char close) {
  std::size_t begin = header.find("'" + key + "'");
  if (begin != std::string::npos) begin = header.find_first_not_of(" :", begin + key.size() + 2);
  if (begin == std::string::npos || header[begin] != open) return {};
  const std::size_t end = header.find(close, begin + 1);
  return end == std::string::npos ? std::string() : header.substr(begin + 1, end - begin - 1);
}

std::string npy_dtype(const std::string& path, const std::string& descr) {
  for (const TokenType& type : token_types()) {
    const std::string code = (type.is_signed ? "i" : "u") + std::to_string(type.bytes);
    if (descr == "<" + code || (type.bytes == 1 && descr == "|" + code)) return type.name;
  }
  throw InputError(path, "descr", printable(descr), "is not a little-endian integer type",
                   "save it as one, numpy.save(file, ids.astype('<u4'))");
}

std::int64_t npy_count(const std::string& path, const std::string& shape) {
  const std::size_t digits = std::min(shape.find_first_not_of("0123456789"), shape.size());
  const bool one_axis = digits > 0 && digits < 19 && shape.substr(digits) == ",";
  if (!one_axis)
    throw InputError(path, "shape", "(" + printable(shape) + ")", "is not one axis", "save ids.reshape(-1)");
  return std::stoll(shape.substr(0, digits));
}

/// Reads an NPY header of version 1 (its length in two bytes), 2 or 3 (in four bytes).
NpyHeader read_npy_header(const InputFile& file) {
  std::array<unsigned char, 12> fixed{};
  const auto refuse = [&] {
    throw InputError(file.path(), "", "", "has a broken NPY header", "save it again");
  };
  if (file.size() < 12) refuse();
  file.read(0, 12, fixed.data());
  const bool wide = fixed[6] >= 2;
  const std::int64_t begin = wide ? 12 : 10;
  std::uint32_t length = 0;
  std::memcpy(&length, &fixed[8], wide ? 4 : 2);
  if (fixed[6] < 1 || fixed[6] > 3 || length > kLargestNpyHeader || begin + length > file.size()) refuse();
  std::string text(length, '\0');
  file.read(begin, length, text.data());
  return {npy_dtype(file.path(), npy_value(text, "descr", '\'', '\'')),
          npy_count(file.path(), npy_value(text, "shape", '(', ')')), begin + length};
}

template <class T>
void widen(const std::vector<char>& bytes, std::int64_t* ids) {
  T id;
  for (std::size_t i = 0; i * sizeof(T) < bytes.size(); ++i) {
    std::memcpy(&id, &bytes[i * sizeof(T)], sizeof(T));
    ids[i] = static_cast<std::int64_t>(id);  // NOLINT(bugprone-signed-char-misuse): int8 keeps its sign
  }
}

void widen(const TokenType& type, const std::vector<char>& bytes, std::int64_t* ids) {
  switch (type.bytes) {
    case 1:
      return type.is_signed ? widen<std::int8_t>(bytes, ids) : widen<std::uint8_t>(bytes, ids);
    case 2:
      return type.is_signed ? widen<std::int16_t>(bytes, ids) : widen<std::uint16_t>(bytes, ids);
    case 4:
      return type.is_signed ? widen<std::int32_t>(bytes, ids) : widen<std::uint32_t>(bytes, ids);
    default:
      return widen<std::int64_t>(bytes, ids);
  }
}

/// Returns whether most words are ids below `bound`. Not all need to be: an id outside the vocabulary is
/// reported later. In text stored as uint16 few words are, because every second id would have to be near 0.
bool reads_as_uint32(const std::vector<std::uint32_t>& words, std::int64_t bound) {
  const auto ids = std::count_if(words.begin(), words.end(), [&](std::uint32_t id) { return id < bound; });
  return 2 * static_cast<std::size_t>(ids) > words.size();
}

/// Returns whether the words alternate between ids below `bound` and the upper halves of these ids, which are
/// nearly all 0.
bool reads_as_int64(const std::vector<std::uint32_t>& words, std::int64_t bound) {
  std::size_t ids = 0, upper = 0;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) {
    ids += words[i] > 0 && words[i] < bound ? 1 : 0;
    upper += words[i + 1] == 0 ? 1 : 0;
  }
  return words.size() % 2 == 0 && 4 * ids > words.size() && 200 * upper >= 99 * words.size();
}

bool starts_with_npy_magic(const InputFile& file) {
  std::array<char, kNpyMagic.size()> start{};
  const auto bytes = static_cast<std::int64_t>(start.size());
  if (file.size() < bytes) return false;
  file.read(0, bytes, start.data());
  return std::string_view(start.data(), start.size()) == kNpyMagic;
}

}  // namespace

TokenFile TokenFile::open(const std::string& path, std::optional<TokenFormat> format,
                          std::optional<RawIdType> dtype, std::optional<std::int64_t> vocab_size) {
  const std::string extension = std::filesystem::path(path).extension().string();
  if (extension == ".json" || extension == ".idx")
    throw InputError(path, "", "", "stands beside a token file and is none itself",
                     "give the path of the file with the ids");
  TokenFile tokens(path);
  tokens.sidecar_ = read_token_sidecar(path);
  tokens.choose_format(format);
  NpyHeader header;
  if (tokens.format_ == TokenFormat::npy) header = read_npy_header(tokens.file_);
  if (tokens.index_ && tokens.index_->data_bytes() != tokens.file_.size())
    throw InputError(path, "", "",
                     "has " + std::to_string(tokens.file_.size()) + " bytes where " + tokens.index_->path() +
                         " asks for " + std::to_string(tokens.index_->data_bytes()),
                     "give a .bin and .idx of one dataset");
  tokens.data_begin_ = header.data_begin;
  tokens.choose_type(tokens.index_ ? tokens.index_->dtype() : header.dtype, dtype, vocab_size);
  tokens.count_ids();
  if (tokens.format_ == TokenFormat::npy && tokens.count_ != header.count)
    throw InputError(path, "shape", std::to_string(header.count),
                     "the file holds " + std::to_string(tokens.count_) + " ids",
                     "it is cut short or overlong");
  return tokens;
}

/// Sets format_, and opens index_ if that is megatron.
void TokenFile::choose_format(std::optional<TokenFormat> asked) {
  const bool is_npy = starts_with_npy_magic(file_);
  const std::string index = std::filesystem::path(path()).replace_extension(".idx").string();
  if (asked == TokenFormat::raw && is_npy)
    throw InputError(path(), "tokens.format", "raw", "the file starts with the header of a true NPY file",
                     "auto or npy");
  if (asked == TokenFormat::npy && !is_npy)
    throw InputError(path(), "tokens.format", "npy",
                     "the file has no NPY header (OLMo's .npy files have none)", "auto or raw");
  if (is_npy) {
    format_ = TokenFormat::npy;
  } else if (asked == TokenFormat::megatron || (!asked && std::filesystem::exists(index))) {
    format_ = TokenFormat::megatron;
    index_.emplace(index);
  }
}

/// Sets type_ from the first of header, job and sidecar that names one; the others must not contradict it.
void TokenFile::choose_type(const std::string& header, std::optional<RawIdType> asked,
                            std::optional<std::int64_t> vocab_size) {
  const std::string job = asked ? word_of(raw_id_words(), *asked) : "";
  const std::string beside = sidecar_ ? sidecar_->dtype : "";
  const std::string name = !header.empty()   ? header
                           : !job.empty()    ? job
                           : !beside.empty() ? beside
                                             : infer_raw_type(vocab_size);
  if (!job.empty() && job != name)
    throw InputError(path(), "tokens.dtype", job, "the file's own header says " + name, "auto or " + name);
  if (!beside.empty() && beside != name)
    throw InputError(sidecar_->path, "dtype", printable(beside),
                     "the " + std::string(header.empty() ? "job" : "token file's header") + " says " + name,
                     "the two must agree");
  const auto& types = token_types();
  const auto found =
      std::find_if(types.begin(), types.end(), [&](const TokenType& t) { return t.name == name; });
  if (found == types.end())
    throw InputError(beside.empty() ? path() : sidecar_->path, "dtype", printable(name),
                     "is not an integer type", "uint16 or uint32, or int or uint of 8, 16, 32 or 64 bits");
  type_ = *found;
}

/// Returns the type of raw ids that the vocabulary implies. Throws InputError if the first ids could be of
/// another type.
std::string TokenFile::infer_raw_type(std::optional<std::int64_t> vocab_size) const {
  if (!vocab_size && sidecar_) vocab_size = sidecar_->vocab_size;
  const std::int64_t bound = vocab_size.value_or(kLargestVocabulary);
  const bool is_wide = vocab_size && *vocab_size > kUint16Ids;
  const std::vector<std::uint32_t> words = first_words();
  const std::string below = " ids below " + std::to_string(bound), beside = token_sidecar_path(path());
  if (reads_as_int64(words, bound))
    throw InputError(path(), "tokens.dtype", "auto", "the file reads as ids of 8 bytes",
                     "write them as uint32, ids.astype(numpy.uint32).tofile(FILE), or write {\"dtype\": "
                     "\"int64\"} to " +
                         beside);
  if (file_.size() == 0 || reads_as_uint32(words, bound) == is_wide) return is_wide ? "uint32" : "uint16";
  throw InputError(
      path(), "tokens.dtype", "auto",
      is_wide ? "the file does not read as uint32" + below + ", the model's vocabulary"
              : "the file reads as uint16 ids and as uint32" + below + " alike",
      "give tokens.dtype = uint16 or uint32, or write {\"dtype\": \"uint16\"} or \"uint32\" to " + beside);
}

/// Returns the first 4-byte words of the file; none if its size is not a multiple of 4.
std::vector<std::uint32_t> TokenFile::first_words() const {
  if (file_.size() % 4 != 0) return {};
  std::vector<std::uint32_t> words(to_size(std::min(file_.size() / 4, kChunk)));
  file_.read(0, static_cast<std::int64_t>(4 * words.size()), words.data());
  return words;
}

/// Sets count_ from the file's size, and compares it with the sidecar's.
void TokenFile::count_ids() {
  const std::int64_t bytes = file_.size() - data_begin_;
  if (bytes == 0) throw InputError(path(), "", "", "holds no tokens", "give a file with at least one id");
  if (bytes % type_.bytes != 0)
    throw InputError(path(), "", "",
                     "its " + std::to_string(bytes) + " bytes are no whole number of " + type_.name + " ids",
                     "it was cut short, or its tokens.dtype is another");
  count_ = bytes / type_.bytes;
  if (sidecar_ && sidecar_->count && *sidecar_->count != count_)
    throw InputError(sidecar_->path, "count", std::to_string(*sidecar_->count),
                     path() + " holds " + std::to_string(count_) + " " + type_.name + " ids",
                     "the two must agree");
}

std::vector<std::int64_t> TokenFile::read(std::int64_t start, std::int64_t count) const {
  HS_ASSERT(start >= 0 && count >= 0 && count <= count_ - start);
  std::vector<std::int64_t> ids(to_size(count));
  std::vector<char> bytes;
  for (std::int64_t done = 0; done < count; done += kChunk) {
    bytes.resize(to_size(std::min(kChunk, count - done) * type_.bytes));
    file_.read(data_begin_ + (start + done) * type_.bytes, static_cast<std::int64_t>(bytes.size()),
               bytes.data());
    widen(type_, bytes, &ids[to_size(done)]);
  }
  return ids;
}

std::vector<std::int64_t> TokenFile::document_ends(std::int64_t limit) const {
  return index_ ? index_->document_ends(limit) : std::vector<std::int64_t>();
}

std::string hash_token_file(const std::string& path) {
  std::string digest = sha256_file(path);
  const std::optional<TokenSidecar> sidecar = read_token_sidecar(path);
  if (sidecar && !sidecar->sha256.empty() && sidecar->sha256 != digest)
    throw InputError(sidecar->path, "sha256", sidecar->sha256, "that of " + path + " is " + digest,
                     "the file was changed or damaged: get it again, or correct the sidecar");
  return digest;
}

}  // namespace headspan
