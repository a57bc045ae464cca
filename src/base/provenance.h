// Provenance: which program made a log or a result, when, where and for which job, as text. Not the versions
// of MPI, HDF5 and LibTorch, which come from the layers that use them.
#pragma once

#include <cstddef>
#include <string>

namespace headspan {

constexpr std::size_t kMaxJobIdLength = 64;

/// Returns the version in CMakeLists.txt, such as "0.3.0".
std::string program_version();

/// Returns the commit that this program was built from: 12 digits, with "-dirty" appended if tracked files
/// differed; "unknown" outside git.
std::string git_id();

/// Returns "headspan 0.3.0 (git 0123456789ab)".
std::string program_name();

/// Returns compiler and build type: "GCC 12.2.0 Release".
std::string compiler();

/// Returns the current time, as "2026-03-01T12:00:05Z".
std::string iso_time_utc();

std::string hostname();

/// Returns the id of this run: the Slurm job ("123"), for an array "ARRAY_TASK" ("123_4"), without Slurm
/// "HOST-PID". It is fit for a file name: at most kMaxJobIdLength letters, digits, '.', '-' and '_', which
/// also replaces any other character. Without Slurm it differs from rank to rank; rank 0's is the job's.
std::string job_id();

}  // namespace headspan
