// The fields of a config.json: typed, checked access, with errors that name file, field and value. Not their
// meaning: that is with the types (read_config.h).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/word_list.h"

namespace headspan {

/// Returns "only a is" or "a, b and c are".
std::string supported(const std::vector<std::string>& words);

/// One object of the file. A field that is null counts as absent. All functions throw InputError if a field
/// that they read is not what they return.
class ConfigFields {
 public:
  /// The largest size: the product of two sizes and 8 bytes fits into 64 bits.
  static constexpr std::int64_t kLargest = std::int64_t{1} << 24;

  /// Reads a file. Throws InputError if it is not JSON.
  explicit ConfigFields(const std::string& path);

  bool has(const std::string& key) const;
  const nlohmann::json& at(const std::string& key) const;
  ConfigFields object(const std::string& key) const;

  std::int64_t integer(const std::string& key, std::int64_t smallest, std::int64_t largest) const;
  /// Does the same for `value`, which was found in the field `key`.
  std::int64_t integer(const std::string& key, const nlohmann::json& value, std::int64_t smallest,
                       std::int64_t largest) const;
  std::int64_t size(const std::string& key) const { return integer(key, 1, kLargest); }
  double positive(const std::string& key) const;
  double positive_or(const std::string& key, double otherwise) const;
  bool flag(const std::string& key, bool otherwise = false) const;
  std::string text(const std::string& key) const;

  /// Returns what the word in a field stands for.
  template <class E>
  E word(const std::string& key, const WordList<E>& words) const {
    const std::optional<E> value = value_of(words, text(key));
    if (value) return *value;
    std::vector<std::string> names;
    for (const auto& [name, meaning] : words) names.push_back(name);
    refuse(key, "is not supported", supported(names));
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& wrong, const std::string& right) const;

 private:
  ConfigFields(std::string file, std::string prefix, nlohmann::json object);

  std::string file_;
  std::string prefix_;  // of field names in messages
  nlohmann::json object_;
};

}  // namespace headspan
