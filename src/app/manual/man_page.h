// The manual page headspan(1), in the macros of man(7), made from the tables of commands, options and keys.
#pragma once

#include <string>

namespace headspan {

/// Returns the text of headspan.1.
std::string man_page();

}  // namespace headspan
