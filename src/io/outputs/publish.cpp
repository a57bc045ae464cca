#include "io/outputs/publish.h"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <sstream>
#include <system_error>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/output_file.h"
#include "base/printable.h"
#include "base/provenance.h"
#include "base/sha256.h"
#include "dist/comm/agreement.h"
#include "io/hdf5/h5_file.h"
#include "io/outputs/output_folder.h"

namespace headspan {
namespace {

namespace fs = std::filesystem;

/// Flushes a file, or the names in a folder, to the disk.
void sync(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw_errno("cannot open", path);
  const int code = ::fsync(file) == 0 ? 0 : errno;
  ::close(file);
  if (code == 0 || code == EINVAL) return;  // EINVAL: a file system that cannot sync folders
  errno = code;
  throw_errno("cannot write to the disk", path);
}

/// Renames a file to its final name, durably.
void move_into_place(const std::string& temporary, const std::string& path) {
  sync(temporary);
  if (std::rename(temporary.c_str(), path.c_str()) != 0)
    throw_errno("cannot rename " + temporary + " to", path);
  sync(folder_of(path));
}

std::string to_text(const Done& done) {
  return "size " + std::to_string(done.size) + "\nsha256 " + done.sha256 + "\njob_id " + done.job_id +
         "\njob_digest " + done.job_digest + "\n";
}

/// Removes PATH.tmp.* and PATH.done.tmp.*, and those of its state, whichever run they are from.
void remove_leftovers(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder_of(path), ignored)) {
    const std::string other = entry.path().filename().string();
    for (const char* kind : {".tmp.", ".done.tmp.", ".state.tmp.", ".state.done.tmp."})
      if (other.rfind(name + kind, 0) == 0) ::unlink(entry.path().c_str());
  }
}

void write_text(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.append(text);
  file.close();
}

std::string done_temporary(const Publication& publication) {
  return publication.path + ".done.tmp." + publication.job_id;
}

/// Verifies the written file, renames it, and writes its .done. Rank 0 only.
void complete(const Publication& publication, const std::string& temporary,
              const std::function<void(const std::string&)>& verify) {
  const std::string& path = publication.path;
  try {
    if (publication.is_hdf5) H5File::open(temporary).close();
    verify(temporary);
  } catch (const InputError& e) {  // the program wrote this file: it is no input
    throw Error(e.what());
  }
  const Done done{static_cast<std::int64_t>(fs::file_size(temporary)), sha256_file(temporary),
                  publication.job_id, publication.job_digest};
  if (publication.lock != nullptr) publication.lock->check();
  move_into_place(temporary, path);
  write_text(done_temporary(publication), to_text(done));
  move_into_place(done_temporary(publication), path + ".done");
}

}  // namespace

std::optional<Done> read_done(const std::string& path) {
  std::istringstream file;
  try {
    file.str(read_small_file(path + ".done"));
  } catch (const InputError&) {  // missing, or not a regular file
    return std::nullopt;
  }
  Done done;
  std::string size, sha256, job_id, job_digest;
  if (!(file >> size >> done.size >> sha256 >> done.sha256 >> job_id >> std::ws) ||
      !std::getline(file, done.job_id) || !(file >> job_digest >> std::ws) ||
      !std::getline(file, done.job_digest))
    return std::nullopt;
  if (size != "size" || sha256 != "sha256" || job_id != "job_id" || job_digest != "job_digest")
    return std::nullopt;
  return done;
}

bool is_complete(const std::string& path) {
  const auto done = read_done(path);
  std::error_code missing;
  const auto size = fs::file_size(path, missing);
  return done && !missing && static_cast<std::int64_t>(size) == done->size &&
         sha256_file(path) == done->sha256;
}

bool check_done(const std::string& path) {
  const std::string done = path + ".done";
  std::error_code missing;
  if (!fs::exists(fs::symlink_status(done, missing))) return false;
  if (!is_complete(path))
    throw InputError(path, "", "", "is not the file that its .done speaks of: it was changed or cut short",
                     "make it anew, or remove " + done + " where the change was meant");
  return true;
}

void check_done(const Comm& comm, const std::vector<std::string>& paths, const Log& log) {
  std::vector<int> lacks_done(paths.size(), 0);
  agree(comm, [&] {
    const auto ranks = static_cast<std::size_t>(comm.size());
    for (auto p = static_cast<std::size_t>(comm.rank()); p < paths.size(); p += ranks)
      lacks_done[p] = check_done(paths[p]) ? 0 : 1;
  });
  comm.sum(lacks_done.data(), static_cast<std::int64_t>(lacks_done.size()));
  for (std::size_t p = 0; p < paths.size(); ++p)
    if (lacks_done[p] != 0)
      log.warning(paths[p] + " has no .done beside it: it is not known to be whole and unchanged");
}

void publish(const Comm& comm, const Publication& publication,
             const std::function<void(const std::string& temporary)>& write,
             const std::function<void(const std::string& temporary)>& verify) {
  const std::string& path = publication.path;
  const std::string temporary = path + ".tmp." + publication.job_id;
  HS_ASSERT(!publication.job_id.empty() && publication.job_id.find('/') == std::string::npos);
  HS_ASSERT((publication.job_id + publication.job_digest).find('\n') == std::string::npos);
  try {
    agree(comm, [&] {
      if (!comm.is_root()) return;
      if (publication.lock != nullptr) publication.lock->check();
      make_folder(folder_of(path));
      remove_leftovers(path);
    });
    agree(comm, [&] {
      try {
        write(temporary);
      } catch (const AgreedError&) {
        throw;
      } catch (const std::exception& e) {
        // Alone, while the others go on with the file: they would wait for this rank.
        if (comm.size() > 1 && !h5_close_failure().empty()) {
          ::unlink(temporary.c_str());
          abort_job(error_message(e));
        }
        throw;
      }
    });
    agree(comm, [&] {
      if (comm.is_root()) complete(publication, temporary, verify);
    });
  } catch (const AgreedError& e) {
    if (comm.max(h5_close_failure().empty() ? 0 : 1) != 0) abandon_file(comm, temporary, e.what());
    if (comm.is_root()) {  // removes only this run's files: the lock may have been lost
      ::unlink(temporary.c_str());
      ::unlink(done_temporary(publication).c_str());
    }
    comm.barrier();
    throw;
  }
}

void check_file_name(const std::string& path, const std::string& field, const std::string& value) {
  const std::string longest = path + ".state.done.tmp." + job_id();
  const fs::path parts(longest);
  const bool fits = longest.size() < PATH_MAX &&
                    std::all_of(parts.begin(), parts.end(),
                                [](const fs::path& part) { return part.string().size() <= NAME_MAX; });
  if (!fits)
    throw InputError("", field, printable(value),
                     "makes names that are too long for a file system: of " + printable(longest),
                     "names of " + std::to_string(NAME_MAX) + " and paths of " +
                         std::to_string(PATH_MAX - 1) + " bytes at most");
}

void publish_text(const std::string& path, const std::string& text) {
  const std::string temporary = path + ".tmp." + std::to_string(::getpid());
  make_folder(folder_of(path));
  remove_leftovers(path);
  try {
    write_text(temporary, text);
    move_into_place(temporary, path);
  } catch (const Error&) {
    ::unlink(temporary.c_str());
    throw;
  }
}

}  // namespace headspan
