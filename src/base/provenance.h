// Provenance: the words by which a log or a result says which program made it, when, where and for which job.
// Not the versions of MPI, HDF5 or LibTorch: the layers that use them tell those.
#pragma once

#include <cstddef>
#include <string>

namespace headspan {

constexpr std::size_t kLongestJobId = 64;

/// "0.2.0", as CMake's project says.
std::string program_version();

/// The commit this program was built from, 12 digits, "-dirty" behind it when tracked files differed;
/// "unknown" outside git.
std::string git_id();

/// "headspan 0.2.0 (git 0123456789ab)".
std::string program_name();

/// "GCC 12.2.0 Release": compiler and build type.
std::string compiler();

/// Now, as "2026-03-01T12:00:05Z".
std::string iso_time_utc();

std::string hostname();

/// The id of this run: the Slurm job ("123"), of an array "ARRAY_TASK" ("123_4"); without Slurm "HOST-PID".
/// Fit for a file name: kLongestJobId characters at most, letters, digits, '.', '-' and '_' ('_' for any
/// other). Without Slurm it differs from rank to rank: rank 0's is the job's.
std::string job_id();

}  // namespace headspan
