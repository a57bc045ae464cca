// The kernels of OpenBLAS. It has some for each family of processors (it calls them cores: Haswell,
// SkylakeX), and chooses by the processor's name when it is loaded; a processor that it does not know may get
// kernels of a fifth of the speed. headspan measures instead, once for each kind of processor, and keeps the
// answer in a file. Another BLAS is left as it is. Not the number of threads (dist/threads.h).
#pragma once

#include <string>

namespace headspan {

/// If the only argument is --blas-speed: prints the core that OpenBLAS runs in this process and its speed in
/// GF/s ("Haswell 71.3"), and returns true. The speed is that of products in FP64 and FP32 on one core, which
/// take about as long as each other; 50 ms. Call it first in main. Local.
bool print_blas_speed(int argc, char** argv);

/// Sets OPENBLAS_CORETYPE to the best core, unless OpenBLAS has chosen that by itself or the user has set the
/// variable. Returns whether the program must start again, because OpenBLAS reads it when it is loaded. The
/// best core is a kept choice (dist/fastest_choice.h), measured in child processes, in some seconds. Never
/// fails: a core that cannot be measured is not taken. Local.
bool use_best_blas_core();

/// Returns which kernels this process runs: "OpenBLAS 0.3.21, Haswell kernels"; "" with another BLAS. Local.
std::string describe_blas();

/// Returns a warning if OPENBLAS_CORETYPE makes OpenBLAS run slow generic kernels on this processor, with the
/// remedy; otherwise "".
std::string blas_warning();

}  // namespace headspan
