// The lock file NAME-JOB-PID.lock that Open MPI makes beside a file that several ranks open: its shared file
// pointer (`lockedfile`), which headspan does not use but Open MPI cannot do without. It is not headspan's
// own NAME.lock (io/outputs/lock_file.h). Open MPI removes it when the file is closed, so that a killed run
// would leave it. Once the file is open on all ranks nothing needs its name.
#pragma once

#include <optional>
#include <string>

#include <sys/types.h>

namespace headspan {

/// Removes Open MPI's lock files of the file at `path`: those of runs whose rank 0 is `process`; if none is
/// given, of all runs, for files that no other run may be opening. Local; errors are ignored.
void remove_mpi_locks(const std::string& path, std::optional<pid_t> process);

}  // namespace headspan
