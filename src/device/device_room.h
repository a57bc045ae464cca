// Tells whether the devices of all ranks have room for a computation. Ranks ask before it starts, so that all
// of them fall back to the host together.
#pragma once

#include <cstdint>

#include <c10/core/Device.h>

#include "dist/comm/mpi.h"

namespace headspan {

/// Returns whether every rank can allocate `bytes` on its device, all at the same time, as ranks may share a
/// device. LibTorch keeps the memory for the computation that follows. Collective over comm.
bool have_room(const Comm& comm, at::Device device, std::int64_t bytes);

}  // namespace headspan
