#include "io/json_text.h"

#include <algorithm>

#include "base/error.h"
#include "base/printable.h"

namespace headspan {
namespace {

constexpr int kMaxDepth = 32;

/// Returns how deep objects and lists are nested, whether or not they are closed.
int nesting_depth(const std::string& text) {
  int depth = 0, max_depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"')
      in_string = !in_string;
    else if (in_string)
      i += c == '\\' ? 1 : 0;
    else if (c == '{' || c == '[')
      max_depth = std::max(max_depth, ++depth);
    else if (c == '}' || c == ']')
      --depth;
  }
  return max_depth;
}

}  // namespace

nlohmann::json parse_json(const std::string& where, const std::string& text, const std::string& right,
                          const nlohmann::json::parser_callback_t& callback) {
  const auto refuse = [&](const std::string& wrong) { throw InputError(where, "", "", wrong, right); };
  if (text.find('\0') != std::string::npos) refuse("holds a NUL byte");  // the parser would end there
  if (nesting_depth(text) > kMaxDepth) refuse("nests deeper than " + std::to_string(kMaxDepth));
  try {
    return nlohmann::json::parse(text, callback);
  } catch (const nlohmann::json::exception& error) {
    throw InputError(where, "", "", "is not valid JSON: " + printable(error.what()), right);
  }
}

}  // namespace headspan
