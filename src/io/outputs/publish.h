// Publishing: how a file comes to stand under its final name whole or not at all. It is written beside the
// target as PATH.tmp.JOBID, forced to the disk, checked, and renamed; then PATH.done, which says what the
// complete file is, follows in the same way. After a crash at any instant PATH is the previous complete file
// or the new one, and only a PATH that agrees with its PATH.done counts. Not a lock: who publishes a path
// that others may be at work on holds the lock of it (io/outputs/lock_file.h) and names it in the
// Publication.
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

/// The contents of PATH.done: one "key value" a line.
struct Done {
  std::int64_t size = 0;   ///< of the file, bytes
  std::string sha256;      ///< of the file
  std::string job_id;      ///< of the run that made it
  std::string job_digest;  ///< equal for runs that would make the same file
};

/// What PATH.done says; nothing when it is missing or not of this form.
std::optional<Done> read_done(const std::string& path);

/// Whether the file at `path` is the one its .done speaks of: size first, then SHA-256, for which it is read
/// once.
bool is_complete(const std::string& path);

/// Holds the file against its .done, where it has one: false where it has none. Throws InputError where the
/// file is not the one that its .done speaks of. One rank.
bool check_done(const std::string& path);

/// The same of all these files, dealt out over the ranks, for who goes on to read them; warns of those
/// without a .done. Throws AgreedError. Collective over comm.
void check_done(const Comm& comm, const std::vector<std::string>& paths, const Log& log);

struct Publication {
  std::string path;
  std::string job_id;  ///< becomes part of a file name
  std::string job_digest;
  const LockFile* lock = nullptr;  ///< on the root: must still be this run's when the file gets its name
};

/// Publishes one HDF5 file, replacing what was there; makes its folder, and removes what dead jobs left of it
/// unfinished, as which every other PATH.tmp.* counts. Collective. `write(temporary)` runs on every rank and
/// must leave the file closed; it may be collective over `comm` and must then let a failure of one rank fail
/// all (AgreedError) before the next collective call. `verify(temporary)` runs on rank 0 and throws when the
/// file is not as it should be. On failure the temporary file is removed, the old file stays, and AgreedError
/// is thrown on all ranks.
void publish(const Comm& comm, const Publication& publication,
             const std::function<void(const std::string& temporary)>& write,
             const std::function<void(const std::string& temporary)>& verify);

/// Bytes of the path of a file that several ranks open: Open MPI's shared file pointers (kind lockedfile)
/// write it and up to 27 bytes more into 256, without a look at its length.
constexpr std::size_t kLongestSharedPath = 228;

/// Throws InputError where a file that ranks write together at `path`, or its state, would have a longer path
/// while it is made. Local.
void check_shared_path(const std::string& path);

/// Throws InputError, which blames `field` = `value`, where a name is too long for a file system: of a folder
/// of `path`, or of a file that stands beside it while it is made and published. Local.
void check_file_name(const std::string& path, const std::string& field, const std::string& value);

/// Publishes a small text file without a .done: the old one or the new one stands there. Makes its folder.
/// Throws Error. One rank.
void publish_text(const std::string& path, const std::string& text);

}  // namespace headspan
