// Reads the text of an HDF5 attribute, of fixed or of variable length. Strings of variable length are stored
// in HDF5's global heap, which has no checksum: if it is damaged, HDF5 crashes or never returns. So HDF5 is
// only asked where such a string is, and it is read from there with every step checked. Not for datasets of
// strings.
#pragma once

#include <optional>
#include <string>

#include <hdf5.h>

namespace headspan {

/// Reads the single string of an open attribute of the file at `path`, up to its first null byte; nothing if
/// the heap does not hold it where the attribute says. Throws H5Error if HDF5 cannot read it. Local.
std::optional<std::string> read_h5_string(const std::string& path, hid_t attribute);

}  // namespace headspan
