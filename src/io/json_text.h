// JSON that others wrote: what every reader of it here refuses before it looks at a field. Deep nesting among
// it, on which the library's own copying and printing would use up the stack. Headers of safetensors files
// are not parsed to values (safetensors_header.h): they stop at the third level.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace headspan {

/// The value of `text`. Throws InputError(where, .., right) where it is not valid JSON, holds a NUL byte or
/// nests deeper than 32. `callback`: as nlohmann::json::parse has it.
nlohmann::json parse_json(const std::string& where, const std::string& text, const std::string& right,
                          const nlohmann::json::parser_callback_t& callback = nullptr);

}  // namespace headspan
