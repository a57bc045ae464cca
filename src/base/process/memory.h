// How the process deals with the system's memory. Not an allocator.
#pragma once

namespace headspan {

/// Memory that was freed stays with the process, blocks of many megabytes too: the temporaries of one layer
/// are those of the next, and fresh pages (each is a fault and is zeroed) would cost a tenth of a forward
/// pass. Call once, at the start of main. Without effect where the C library is not glibc.
void disable_heap_trim();

/// The most that this process has had in memory so far.
double peak_process_bytes();

/// The most that a process of this program has in memory when it does nothing, from its start to its end, at
/// which some libraries touch more than before (PyTorch's for CUDA 100 MB): of one that is started here with
/// `--version`. Throws Error.
double idle_process_bytes();

}  // namespace headspan
