#include "io/outputs/lock_file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>
#include <sstream>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "base/process/live_process.h"
#include "base/process/stop_signal.h"
#include "base/provenance.h"
#include "io/outputs/output_folder.h"

namespace headspan {
namespace {

constexpr std::chrono::seconds kRenewal{15}, kPoll{1};
constexpr std::chrono::seconds kUnwritten{5};  // until a lock without text counts as abandoned

/// Returns the text of a lock; nothing if there is none, or if it is being replaced.
std::optional<std::string> read_lock(const std::string& path) {
  try {
    return read_small_file(path);
  } catch (const InputError&) {
    struct stat status {};
    const bool exists = ::stat(path.c_str(), &status) == 0;
    if (exists ? !S_ISREG(status.st_mode) || ::access(path.c_str(), R_OK) != 0 : errno != ENOENT) throw;
    return std::nullopt;
  }
}

/// Returns the value of `key` in the text of a lock.
std::string field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(key + " ", 0) == 0) return line.substr(key.size() + 1);
  return "?";
}

/// Returns who wrote the text of a lock, in words for messages.
std::string holder(const std::string& text) {
  std::istringstream process(field(text, "process"));
  std::string host, pid;
  process >> host >> pid;
  return printable("job " + field(text, "job_id") + " (process " + pid + " on " + host + ", since " +
                   field(text, "since") + ")");
}

/// Returns when a lock was last renewed. Opens it, because NFS caches the attributes of closed files.
std::optional<timespec> renewal_time(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  const bool known = file >= 0 && ::fstat(file, &status) == 0;
  if (file >= 0) ::close(file);
  return known ? std::optional(status.st_mtim) : std::nullopt;
}

/// Finds out whether the run that wrote `text` into the lock at `path` is alive: from its process or, if that
/// cannot be seen from here, from renewals of the lock. Returns unknown if the lock changes in the meantime,
/// or if a stop signal comes.
Life life_of_holder(const std::string& path, const std::string& text, std::chrono::seconds patience,
                    const Log& log) {
  const Life life = life_of(field(text, "process"));
  if (life != Life::unknown) return life;
  log.notice(path + " is of " + holder(text) + ": looking for up to " + std::to_string(patience.count()) +
             " s whether that still runs");
  const auto first = renewal_time(path);
  for (std::chrono::seconds waited{0}; waited < patience; waited += kPoll) {
    std::this_thread::sleep_for(kPoll);
    const auto now = renewal_time(path);
    if (!now || !first || read_lock(path) != text || stop_signal_seen()) return Life::unknown;
    if (now->tv_sec != first->tv_sec || now->tv_nsec != first->tv_nsec) return Life::alive;
  }
  return Life::dead;
}

/// Writes a new file; returns false if one of this name exists.
bool create(const std::string& path, const std::string& text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0 && errno == EEXIST) return false;
  if (file < 0) throw_errno("cannot create the file", path);
  const ssize_t written = ::write(file, text.data(), text.size());
  int code = written == static_cast<ssize_t>(text.size()) ? 0 : written < 0 ? errno : ENOSPC;
  if (::close(file) != 0 && code == 0) code = errno;
  if (code == 0) return true;
  ::unlink(path.c_str());
  errno = code;
  throw_errno("cannot write the file", path);
}

/// Replaces the abandoned lock by `text`; returns false if another run did so first. Runs that found the same
/// abandoned lock exclude each other by flock, which the kernel releases when a process ends. On a file
/// system without flock two runs that rename at the same instant may both continue; `check` tells the first
/// one that it has lost the lock.
bool replace(const std::string& path, const std::string& abandoned, const std::string& text) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  const bool is_locked = file >= 0 && ::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  bool replaced = false;
  if (!is_locked && read_lock(path) == abandoned) {
    const std::string temporary = path + ".tmp." + hostname() + "-" + std::to_string(::getpid());
    ::unlink(temporary.c_str());  // left by a dead process with the same id
    create(temporary, text);
    replaced = std::rename(temporary.c_str(), path.c_str()) == 0;
    if (!replaced) {
      const int code = errno;
      ::unlink(temporary.c_str());
      errno = code;
      throw_errno("cannot take over", path);
    }
  }
  if (file >= 0) ::close(file);
  return replaced;
}

}  // namespace

std::unique_ptr<LockFile> LockFile::take(const std::string& path, const std::string& job_id, const Log& log,
                                         std::chrono::seconds patience) {
  const std::string lock = path + ".lock";
  const std::string text =
      "job_id " + job_id + "\nsince " + iso_time_utc() + "\nprocess " + this_process() + "\n";
  make_folder(folder_of(path));
  while (!create(lock, text)) {
    const auto other = read_lock(lock);
    if (!other) continue;
    const Life life =
        life_of_holder(lock, *other, other->empty() ? std::min(patience, kUnwritten) : patience, log);
    if (life == Life::alive)
      throw Error(path + ": " + holder(*other) + " is at work on it; wait for its end, or end it");
    if (life == Life::dead && replace(lock, *other, text)) break;
    if (stop_signal_seen()) return nullptr;
  }
  return std::unique_ptr<LockFile>(new LockFile(lock, text));
}

LockFile::LockFile(std::string lock, std::string text) : path_(std::move(lock)), text_(std::move(text)) {
  renewer_ = std::thread([this] { renew(); });
}

LockFile::~LockFile() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  renewer_.join();
  try {
    if (read_lock(path_) == text_) ::unlink(path_.c_str());
  } catch (const std::exception&) {  // the lock stays and counts as abandoned
  }
}

void LockFile::renew() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ended_.wait_for(lock, kRenewal, [this] { return end_; })) {
    try {
      check();
      if (!create(path_, text_)) ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
    } catch (const std::exception&) {  // `check` reports a lost lock; other failures may pass
    }
  }
}

void LockFile::check() const {
  const auto now = read_lock(path_);
  if (now && *now != text_)
    throw Error(path_ + ": " + holder(*now) +
                " has taken over while this run stood still: it publishes nothing");
}

}  // namespace headspan
