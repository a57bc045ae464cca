#include "io/json_text.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"

namespace headspan {
namespace {

constexpr int kDeepest = 32;

/// How deep objects and lists are nested, whether or not they end.
int depth_of(const std::string& text) {
  int depth = 0, deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"')
      in_string = !in_string;
    else if (in_string)
      i += c == '\\' ? 1 : 0;
    else if (c == '{' || c == '[')
      deepest = std::max(deepest, ++depth);
    else if (c == '}' || c == ']')
      --depth;
  }
  return deepest;
}

}  // namespace

nlohmann::json parse_json(const std::string& where, const std::string& text, const std::string& right,
                          const nlohmann::json::parser_callback_t& callback) {
  const auto refuse = [&](const std::string& wrong) { throw InputError(where, "", "", wrong, right); };
  if (text.find('\0') != std::string::npos) refuse("holds a NUL byte");  // where the parser would end
  if (depth_of(text) > kDeepest) refuse("nests deeper than " + std::to_string(kDeepest));
  try {
    return nlohmann::json::parse(text, callback);
  } catch (const nlohmann::json::exception& error) {
    throw InputError(where, "", "", "is not valid JSON: " + printable(error.what()), right);
  }
}

}  // namespace headspan
