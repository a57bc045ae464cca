// What is known of one file: as values for programs and as lines for people.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace headspan {

using Values = nlohmann::ordered_json;  ///< null: unknown

struct Fact {
  std::string name;
  std::string text;  ///< empty: not printed
};

using Facts = std::vector<Fact>;

struct Description {
  std::string path;
  std::string kind;       ///< "token file"
  Values values;          ///< an object
  Facts facts;            ///< the same for people
  std::string text = {};  ///< in place of the facts: what follows the kind, escaped
};

/// Returns complete lines, of which the first names the path and the kind.
std::string format(const Description& description);

/// Returns the values behind "path" and "kind".
Values to_json(const Description& description);

}  // namespace headspan
