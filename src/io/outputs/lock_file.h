// A lock on a file that is being made: PATH.lock beside it names the run at work, so that no second run makes
// the same file. The holder renews its modification time every 15 s. A lock counts as abandoned, and is taken
// over, if its process is gone from this machine, or, for a process of another machine, if its modification
// time does not change for two minutes. So a run may have to wait two minutes after another was killed
// elsewhere, and a process that is suspended for longer loses its lock to a run on another machine. Works on
// any file system that creates and renames atomically, such as NFS, and needs no synchronised clocks.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/log.h"

namespace headspan {

class LockFile {
 public:
  static constexpr std::chrono::seconds kPatience{120};

  /// Takes the lock of the file at `path`, creating its folder. If another run holds it, finds out whether
  /// that run is alive and, if so, throws Error naming it. Returns null if a signal to stop
  /// (base/process/stop_signal.h) comes meanwhile. `patience`: how long a lock of another machine must go
  /// without renewal to count as abandoned. Called on one rank of the run.
  static std::unique_ptr<LockFile> take(const std::string& path, const std::string& job_id, const Log& log,
                                        std::chrono::seconds patience = kPatience);
  ~LockFile();  ///< Releases the lock.
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  /// Throws Error if another run has taken the lock over: what this run made must not be published.
  void check() const;

 private:
  LockFile(std::string lock, std::string text);
  void renew();

  std::string path_, text_;  // of the lock file
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread renewer_;  // last: it uses the others
};

}  // namespace headspan
