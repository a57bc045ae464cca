// Forward selection on a device: stats/regression/forward.h in ATen, the same code on a GPU and in host
// memory, for many targets at a time. Each has the moments of all its pool and itself on the device, scaled
// to unit diagonal, and after each choice their Schur complement.
//
// Candidates are factored without pivoting. A target is left to the host where that would not be safe (a
// pivot near the tolerance at which it would be dropped, that of a constant coordinate too) or where two
// candidates are as good as each other but for rounding: so the choice is the host's, here as there.
#pragma once

#include <c10/core/Device.h>

#include "stats/regression/forward.h"

namespace headspan {

/// A ForwardChoices on the device. It throws c10::Error, among others where the device has too little memory.
ForwardChoices device_forward_choices(at::Device device);

/// Bytes that it takes there for pools of `pool`, at most. Local; the same on every rank.
std::int64_t device_forward_bytes(const HeadLayout& layout, std::int64_t pool);

}  // namespace headspan
