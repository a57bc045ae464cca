// What LibTorch asks of a back end for CUDA, but operators: memory, the current device, what there is.
#pragma once

#include <c10/core/Allocator.h>

namespace simulated {

/// Of the current GPU.
c10::Allocator& device_allocator();

/// Until all is done that was put on this thread's stream: what an operator's work is behind.
void wait_for_current_stream();

}  // namespace simulated
