// Digests by which a run knows again what an earlier one has read, wherever it lies and whoever reads it:
// equal for equal contents, on every rank and for copies under other names. Of what is large they take sizes,
// headers and a sample of the bytes, a few MB in all: other training steps, other inputs and files cut short
// are told apart, one changed byte need not be. Not checksums (io/outputs/publish.h).
#pragma once

#include <string>
#include <vector>

#include "io/checkpoint/checkpoint.h"

namespace headspan {

/// Of the weights: each tensor's name, dtype, shape and up to 8 KiB from its middle. The same however the
/// tensors are dealt out over files. Throws Error when a file cannot be read. One rank is enough.
std::string weights_digest(const Checkpoint& checkpoint);

/// Of files in this order: their sizes, and all bytes of those of at most 16 MiB, of others 1024 pieces of
/// 4 KiB from the first byte to the last. Throws as InputFile does. One rank is enough.
std::string files_digest(const std::vector<std::string>& paths);

/// When the files were last changed, in seconds, and their sizes: for who asks whether these very files are
/// still as they were, not for copies. Throws Error. One rank is enough.
std::string change_times(const std::vector<std::string>& paths);

}  // namespace headspan
