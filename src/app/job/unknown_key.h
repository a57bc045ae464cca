// A key that no section has: says which one was probably meant.
#pragma once

#include <string>

namespace headspan {

/// Throws InputError for an unknown key; the message names the nearest key, or the section that has it.
[[noreturn]] void refuse_unknown_key(const std::string& origin, const std::string& key,
                                     const std::string& text);

}  // namespace headspan
