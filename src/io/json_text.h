// JSON text that other programs wrote: the checks that come before anyone looks at a field. Deep nesting is
// refused, because the library copies and prints values recursively and would exhaust the stack. Headers of
// safetensors files do not come this way: their parser stops at the third level (safetensors_header.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace headspan {

/// Parses `text`; `callback` is passed on to nlohmann::json::parse. Throws InputError(where, .., right) if
/// the text is not valid JSON, holds a NUL byte or nests deeper than 32 levels.
nlohmann::json parse_json(const std::string& where, const std::string& text, const std::string& right,
                          const nlohmann::json::parser_callback_t& callback = nullptr);

}  // namespace headspan
