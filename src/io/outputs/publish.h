// Publishing: how a file gets its final name, complete or not at all. It is written as PATH.tmp.JOBID beside
// the target, forced to the disk, checked, and renamed; then PATH.done, which describes the complete file,
// follows in the same way. After a crash at any instant PATH is the previous complete file or the new one,
// and it counts only if it agrees with PATH.done. Publishing takes no lock: if other runs may work on the
// same path, the caller holds its lock (io/outputs/lock_file.h) and names it in the Publication.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "dist/comm/mpi.h"
#include "io/outputs/lock_file.h"

namespace headspan {

/// The contents of PATH.done, a "key value" per line.
struct Done {
  std::int64_t size = 0;   ///< of the file, in bytes
  std::string sha256;      ///< of the file
  std::string job_id;      ///< of the run that made it
  std::string job_digest;  ///< equal for runs that would make the same file
};

/// Reads PATH.done; nothing if it is missing or malformed.
std::optional<Done> read_done(const std::string& path);

/// Returns whether the file at `path` agrees with its .done: in its size, then in its SHA-256, for which the
/// file is read once.
bool is_complete(const std::string& path);

/// Compares the file with its .done; returns false if it has none. Throws InputError if they disagree. Local.
bool check_done(const std::string& path);

/// Compares these files with their .done; each rank compares a share of the files. Logs a warning for those
/// without a .done. Throws AgreedError. Collective over comm.
void check_done(const Comm& comm, const std::vector<std::string>& paths, const Log& log);

struct Publication {
  std::string path;
  std::string job_id;  ///< becomes part of a file name
  std::string job_digest;
  const LockFile* lock = nullptr;  ///< on rank 0: checked before the file gets its name
  bool is_hdf5 = true;             ///< which is then checked too
};

/// Publishes a file, replacing an existing one. Creates its folder, and removes every other PATH.tmp.*
/// as left unfinished by a dead job. `write(temporary)` runs on every rank and must leave the file closed; it
/// may be collective over `comm`, and must then make a failure of one rank fail all (AgreedError) before the
/// next collective call. `verify(temporary)` runs on rank 0 and throws if the file is wrong. On failure the
/// temporary file is removed, the old file stays, and all ranks throw AgreedError; where HDF5 could not close
/// a file the job ends (abandon_file). Collective over comm.
void publish(const Comm& comm, const Publication& publication,
             const std::function<void(const std::string& temporary)>& write,
             const std::function<void(const std::string& temporary)>& verify);

/// Throws InputError, blaming `field` = `value`, if a name is too long for a file system: that of a folder of
/// `path`, or of a file beside it while it is written and published. Local.
void check_file_name(const std::string& path, const std::string& field, const std::string& value);

/// Publishes a small text file without a .done: at any instant the old or the new one is there. Creates its
/// folder, and removes every other PATH.tmp.*. Throws Error. Local.
void publish_text(const std::string& path, const std::string& text);

}  // namespace headspan
