// How much memory a process of this program takes. Not an allocator.
#pragma once

namespace headspan {

/// Returns the peak resident size of this process so far, in bytes.
double peak_process_bytes();

/// Starts `headspan --version` and returns the peak resident size of that process in bytes: what a process of
/// this program takes even if it does nothing. This includes its exit, when some libraries touch more memory
/// than before (PyTorch's CUDA libraries 100 MB). Throws Error.
double idle_process_bytes();

/// Gives memory that was freed back to the system. The C library keeps arrays below 32 MiB for what is
/// allocated next, but larger ones never use them. Local.
void return_freed_memory();

}  // namespace headspan
