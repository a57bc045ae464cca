// Forward selection on a device: stats/regression/forward.h in ATen, the same code on a GPU and in host
// memory, for many targets at a time. The device holds the moments of each target and its pool, scaled to
// unit diagonal, and after each choice their Schur complement.
//
// Candidates are factored without pivoting. That is not safe if a pivot is near the tolerance at which it
// would be dropped; such a target is left to the host. So is one for which two candidates are equal up to
// rounding. The choice is therefore always that of the host.
#pragma once

#include <c10/core/Device.h>

#include "stats/regression/forward.h"

namespace headspan {

/// Returns a ForwardChoices that runs on the device. It throws c10::Error, for example if the device is out
/// of memory.
ForwardChoices device_forward_choices(at::Device device);

/// Returns the bytes of device memory that it needs at most for pools of `pool` heads. Local; the same on
/// every rank.
std::int64_t device_forward_bytes(const HeadLayout& layout, std::int64_t pool);

}  // namespace headspan
