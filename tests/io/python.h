// Runs the independent readers and writers of the tests: Python scripts beside the tests, by the Python that
// CMake found.
#pragma once

#include <cstdlib>
#include <string>

namespace headspan {

/// Exit status of `SCRIPT ARGUMENTS`; what it prints appears in the test's output. The environment is
/// emptied: Debian's h5py would otherwise join the MPI job.
inline int run_python(const std::string& script, const std::string& arguments) {
  const std::string command = "env -i PATH=/usr/bin:/bin " HEADSPAN_TEST_PYTHON " -B " HEADSPAN_TEST_FOLDER
                              "/" +
                              script + " " + arguments;
  return std::system(command.c_str());
}

}  // namespace headspan
