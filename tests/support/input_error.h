// What an InputError says: for tests of refusals.
#pragma once

#include <string>

#include "base/error.h"

namespace headspan {

/// The line of the InputError that `step` throws; "nothing was refused" when it throws none.
template <class Step>
std::string input_error_of(const Step& step) {
  try {
    step();
  } catch (const InputError& error) {
    return error.what();
  }
  return "nothing was refused";
}

}  // namespace headspan
