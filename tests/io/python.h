// Runs the tests' independent readers and writers: Python scripts beside the tests, with the Python that
// CMake found.
#pragma once

#include <cstdlib>
#include <string>

namespace headspan {

/// Runs `SCRIPT ARGUMENTS` and returns its exit status. The environment is empty, because Debian's h5py would
/// otherwise join the MPI job.
inline int run_python(const std::string& script, const std::string& arguments) {
  const std::string command = "env -i PATH=/usr/bin:/bin " HEADSPAN_TEST_PYTHON " -B " HEADSPAN_TEST_FOLDER
                              "/" +
                              script + " " + arguments;
  return std::system(command.c_str());
}

}  // namespace headspan
