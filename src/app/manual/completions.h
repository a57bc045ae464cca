// Completion of headspan's command line in shells, made from the tables of commands, options and keys.
#pragma once

#include <string>

namespace headspan {

std::string bash_completion();  ///< a file that bash-completion loads for the command headspan
std::string zsh_completion();   ///< a function _headspan for zsh's fpath

}  // namespace headspan
