#include "io/inputs/token_sidecar.h"

#include <cctype>
#include <filesystem>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "io/json_text.h"

namespace headspan {
namespace {

using nlohmann::json;

constexpr std::int64_t kLargestSidecar = 1 << 20;

json parse_object(const std::string& path) {
  if (InputFile(path).size() > kLargestSidecar)
    throw InputError(path, "", "", "is too large for the sidecar of a token file", "at most 1 MiB");
  const std::string text = read_small_file(path);
  const std::string right = "correct it or remove this sidecar of the token file";
  json object = parse_json(path, text, right);
  if (!object.is_object()) throw InputError(path, "", "", "is not a JSON object", right);
  return object;
}

std::int64_t integer(const std::string& path, const char* field, const json& value, std::int64_t lowest) {
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX});
  if (!fits || value.get<std::int64_t>() < lowest)
    throw InputError(path, field, printable(value.dump()),
                     "is not an integer of at least " + std::to_string(lowest));
  return value.get<std::int64_t>();
}

std::optional<std::int64_t> optional_integer(const std::string& path, const char* field, const json& object,
                                             std::int64_t lowest) {
  const json value = object.value(field, json());
  if (value.is_null()) return std::nullopt;
  return integer(path, field, value, lowest);
}

std::string optional_text(const std::string& path, const char* field, const json& object) {
  const json value = object.value(field, json());
  if (value.is_null()) return {};
  if (!value.is_string()) throw InputError(path, field, printable(value.dump()), "is not a text");
  return value.get<std::string>();
}

std::vector<std::int64_t> read_eos(const std::string& path, const json& object) {
  const json eos = object.value("eos", json());
  if (eos.is_null()) return {};
  if (!eos.is_array()) return {integer(path, "eos", eos, 0)};
  std::vector<std::int64_t> ids;
  for (const json& id : eos) ids.push_back(integer(path, "eos", id, 0));
  return ids;
}

std::string read_sha256(const std::string& path, const json& object) {
  std::string digest = optional_text(path, "sha256", object);
  for (char& digit : digest) digit = static_cast<char>(std::tolower(static_cast<unsigned char>(digit)));
  const bool is_digest =
      digest.size() == 64 && digest.find_first_not_of("0123456789abcdef") == std::string::npos;
  if (!digest.empty() && !is_digest)
    throw InputError(path, "sha256", printable(digest), "is not a SHA-256", "64 hexadecimal digits");
  return digest;
}

}  // namespace

std::string token_sidecar_path(const std::string& token_path) {
  return std::filesystem::path(token_path).replace_extension(".json").string();
}

std::optional<TokenSidecar> read_token_sidecar(const std::string& token_path) {
  const std::string path = token_sidecar_path(token_path);
  if (!std::filesystem::exists(path)) return std::nullopt;
  const json object = parse_object(path);
  TokenSidecar sidecar;
  sidecar.path = path;
  sidecar.dtype = optional_text(path, "dtype", object);
  sidecar.count = optional_integer(path, "count", object, 0);
  sidecar.vocab_size = optional_integer(path, "vocab_size", object, 1);
  sidecar.eos = read_eos(path, object);
  sidecar.tokenizer = optional_text(path, "tokenizer", object);
  sidecar.text_bytes = optional_integer(path, "text_bytes", object, 0);
  sidecar.sha256 = read_sha256(path, object);
  for (const std::int64_t id : sidecar.eos)
    if (sidecar.vocab_size && id >= *sidecar.vocab_size)
      throw InputError(path, "eos", std::to_string(id),
                       "is not an id of a vocabulary of " + std::to_string(*sidecar.vocab_size));
  return sidecar;
}

}  // namespace headspan
