// Whether the devices of some ranks hold what they are to work on, asked before the work begins: where they
// do not, all ranks take the host's way together.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "dist/comm/mpi.h"

namespace headspan {

/// Whether every rank can take `bytes` of its device's memory, all at the same time, for ranks may share a
/// device. What was taken is given back to LibTorch, which keeps it for what comes next. Collective over
/// comm.
bool have_room(const Comm& comm, at::Device device, std::int64_t bytes);

}  // namespace headspan
