#include "model/types/config_fields.h"

#include <utility>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "io/json_text.h"

namespace headspan {

using Json = nlohmann::json;

std::string supported(const std::vector<std::string>& words) {
  if (words.size() == 1) return "only " + words[0] + " is";
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " and " : ", ") + words[i];
  return text + " are";
}

ConfigFields::ConfigFields(const std::string& path)
    : ConfigFields(path, "", parse_json(path, read_small_file(path), "fetch or write it again")) {}

ConfigFields::ConfigFields(std::string file, std::string prefix, Json object)
    : file_(std::move(file)), prefix_(std::move(prefix)), object_(std::move(object)) {}

bool ConfigFields::has(const std::string& key) const {
  return object_.contains(key) && !object_[key].is_null();
}

const Json& ConfigFields::at(const std::string& key) const {
  if (!has(key)) throw InputError(file_, prefix_ + key, "", "is missing", "this model type needs it");
  return object_[key];
}

ConfigFields ConfigFields::object(const std::string& key) const {
  if (!at(key).is_object()) refuse(key, "is not an object", "a JSON object is expected");
  return ConfigFields(file_, prefix_ + key + ".", at(key));
}

std::int64_t ConfigFields::integer(const std::string& key, std::int64_t smallest,
                                   std::int64_t largest) const {
  return integer(key, at(key), smallest, largest);
}

std::int64_t ConfigFields::integer(const std::string& key, const Json& value, std::int64_t smallest,
                                   std::int64_t largest) const {
  const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t{INT64_MAX}
                                               : value.is_number_integer();
  if (!fits || value.get<std::int64_t>() < smallest || value.get<std::int64_t>() > largest)
    refuse(key, "is no possible value",
           "an integer from " + std::to_string(smallest) + " to " + std::to_string(largest) + " is expected");
  return value.get<std::int64_t>();
}

double ConfigFields::positive(const std::string& key) const {
  const Json& value = at(key);
  if (!value.is_number() || !(value.get<double>() > 0))
    refuse(key, "is no possible value", "a number above 0 is expected");
  return value.get<double>();
}

double ConfigFields::positive_or(const std::string& key, double otherwise) const {
  return has(key) ? positive(key) : otherwise;
}

bool ConfigFields::flag(const std::string& key, bool otherwise) const {
  if (!has(key)) return otherwise;
  if (!at(key).is_boolean()) refuse(key, "is no possible value", "true or false is expected");
  return at(key).get<bool>();
}

std::string ConfigFields::text(const std::string& key) const {
  if (!at(key).is_string()) refuse(key, "is not a text", "a JSON string is expected");
  return at(key).get<std::string>();
}

void ConfigFields::refuse(const std::string& key, const std::string& wrong, const std::string& right) const {
  throw InputError(file_, prefix_ + key, printable(at(key).dump()), wrong, right);
}

}  // namespace headspan
