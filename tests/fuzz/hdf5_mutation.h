// Changes of an HDF5 file that leave it one: objects and attributes that are missing, renamed, of other
// shapes and types, or hold other values. Not changes of the bytes of a file, which libhdf5 has to bear.
#pragma once

#include <string>

namespace headspan {

/// Changes the file as `bytes` say, whatever they are. A change that libhdf5 refuses is left out.
void mutate_hdf5(const std::string& path, const std::string& bytes);

}  // namespace headspan
