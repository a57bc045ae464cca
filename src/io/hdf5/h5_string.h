// The text of an HDF5 attribute, of fixed or of variable length. Strings of variable length lie in HDF5's
// global heap, which has no checksum: where it is damaged, HDF5 crashes or never comes back. Of those HDF5
// tells here only where they lie, and they are fetched from there with every step checked. Not for datasets
// of strings.
#pragma once

#include <optional>
#include <string>

#include <hdf5.h>

namespace headspan {

/// The single string of an open attribute, up to its first null byte; nothing where it is not to be found
/// where the attribute says. `path` is that of the attribute's file. Throws H5Error where HDF5 cannot read
/// it. Local.
std::optional<std::string> read_h5_string(const std::string& path, hid_t attribute);

}  // namespace headspan
