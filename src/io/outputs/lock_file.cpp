#include "io/outputs/lock_file.h"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <optional>
#include <sstream>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/input_file.h"
#include "base/printable.h"
#include "base/process/live_process.h"
#include "base/provenance.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

constexpr std::chrono::seconds kRenewal{15}, kLook{1};

/// Who holds a lock; nothing where nobody does.
std::optional<std::string> read_lock(const std::string& path) {
  try {
    return read_small_file(path);
  } catch (const InputError&) {
    if (std::filesystem::exists(std::filesystem::symlink_status(path))) throw;
    return std::nullopt;
  }
}

/// The rest of the line of a lock that begins with `key`.
std::string field(const std::string& text, const std::string& key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.rfind(key + " ", 0) == 0) return line.substr(key.size() + 1);
  return "?";
}

std::string holder(const std::string& text) {
  std::istringstream process(field(text, "process"));
  std::string host, pid;
  process >> host >> pid;
  return printable("job " + field(text, "job_id") + " (process " + pid + " on " + host + ", since " +
                   field(text, "since") + ")");
}

/// When a lock was last renewed; opened, for what NFS knows of a closed file may be old.
std::optional<timespec> renewed(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  const bool there = file >= 0 && ::fstat(file, &status) == 0;
  if (file >= 0) ::close(file);
  return there ? std::optional(status.st_mtim) : std::nullopt;
}

/// Of the run that wrote `text` into the lock at `path`: as its process tells, else as the lock's time of
/// change does. Unknown where the lock has gone or changed hands meanwhile.
Life life_of_holder(const std::string& path, const std::string& text, std::chrono::seconds patience,
                    const Log& log) {
  const Life life = life_of(field(text, "process"));
  if (life != Life::unknown) return life;
  log.notice(path + " is of " + holder(text) + ": looking for up to " + std::to_string(patience.count()) +
             " s whether that still runs");
  const auto first = renewed(path);
  for (std::chrono::seconds waited{0}; waited < patience; waited += kLook) {
    std::this_thread::sleep_for(kLook);
    const auto now = renewed(path);
    if (!now || !first || read_lock(path) != text) return Life::unknown;
    if (now->tv_sec != first->tv_sec || now->tv_nsec != first->tv_nsec) return Life::alive;
  }
  return Life::dead;
}

}  // namespace

LockFile::LockFile(const std::string& path, const std::string& job_id, const Log& log,
                   std::chrono::seconds patience)
    : path_(path + ".lock") {
  text_ = "job_id " + job_id + "\nsince " + iso_time_utc() + "\nprocess " + this_process() + "\n";
  const auto folder = std::filesystem::path(path).parent_path();
  make_folder(folder.empty() ? "." : folder.string());
  while (!create()) {
    const auto other = read_lock(path_);
    if (!other) continue;
    const Life life = life_of_holder(path_, *other, patience, log);
    if (life == Life::alive)
      throw Error(path + ": " + holder(*other) + " is at work on it; wait for its end, or end it");
    if (life == Life::dead) take_from(*other);
  }
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
  } catch (const std::exception&) {  // it is left to be found dead
  }
}

/// False where somebody has it.
bool LockFile::create() const {
  const int file = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (file < 0 && errno == EEXIST) return false;
  if (file < 0) throw_errno("cannot create the file", path_);
  const ssize_t written = ::write(file, text_.data(), text_.size());
  const int code = written < 0 ? errno : ENOSPC;
  ::close(file);
  if (written == static_cast<ssize_t>(text_.size())) return true;
  ::unlink(path_.c_str());
  errno = code;
  throw_errno("cannot write the file", path_);
}

/// Puts the lock of a dead run out of the way. Where another run was faster, what was put away is its lock:
/// it is put back.
void LockFile::take_from(const std::string& dead) const {
  const std::string away = path_ + ".tmp." + hostname() + "-" + std::to_string(::getpid());
  if (std::rename(path_.c_str(), away.c_str()) != 0) {
    if (errno == ENOENT) return;
    throw_errno("cannot take over", path_);
  }
  if (read_lock(away) != dead) static_cast<void>(::link(away.c_str(), path_.c_str()));
  ::unlink(away.c_str());
}

void LockFile::renew() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ended_.wait_for(lock, kRenewal, [this] { return end_; })) {
    try {
      check();
      if (!create()) ::utimensat(AT_FDCWD, path_.c_str(), nullptr, 0);
    } catch (const std::exception&) {  // a lost lock is told by who asks; anything else may pass
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
