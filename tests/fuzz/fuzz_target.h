// What is fuzzed: readers of files, each given one input of any bytes. A reader refuses an input with
// InputError or takes it; nothing else may happen. The fuzzer (fuzzer.cpp) makes up inputs; replay.cpp reads
// kept ones.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace headspan {

struct FuzzTarget {
  std::string name;
  /// Reads an input in a folder of its own, in which what it writes may stay. Throws InputError.
  std::function<void(const std::string& folder, const std::string& input)> read;
};

/// Returns whether the reader takes the input; false if it refuses it with an error of exit code 2. Throws
/// what else it throws.
bool takes(const FuzzTarget& target, const std::string& folder, const std::string& input);

/// Those whose inputs are files as they are.
std::vector<FuzzTarget> file_targets();

/// Those whose inputs say how a sound HDF5 file of `bases` is changed before it is read.
std::vector<FuzzTarget> hdf5_targets(const std::string& bases);

/// Returns the target of this name, whose sound files are in HEADSPAN_FUZZ_BASES. Exits with 2 if there is
/// none.
FuzzTarget find_target(const std::string& name);

}  // namespace headspan
