// Digests by which a run recognises input that an earlier run has read: equal for equal contents, on every
// rank and for copies under other names. Of large files they cover sizes, headers and a sample of the bytes,
// a few MB in all: they distinguish training steps, inputs and truncated files, but may miss a single changed
// byte. Not checksums (io/outputs/publish.h).
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace headspan {

/// Returns the digest of a model's weights: of each tensor's name, dtype, shape and up to 8 KiB from its
/// middle. It does not depend on how the tensors are distributed over files. Throws Error if a file cannot be
/// read. Local.
std::string weights_digest(const Checkpoint& checkpoint);

/// Returns the digest of files in this order: of their sizes and, up to 16 MiB, of all their bytes, else of
/// 1024 evenly spaced blocks of 4 KiB that include the first and the last byte. Throws as InputFile does.
/// Local.
std::string files_digest(const std::vector<std::string>& paths);

/// Returns the sizes of the files and when they were last changed, in seconds: to check that these very files
/// are still as they were; copies differ. Throws Error. Local.
std::string change_times(const std::vector<std::string>& paths);

}  // namespace headspan
