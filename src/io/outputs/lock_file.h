// A lock on a file that is being made: PATH.lock beside it says who is at work, so that no second run begins
// the same. Its time of change is renewed every 15 s. A lock is of a dead run, and taken over, where its
// process is gone from this very machine, or, of another machine, where the time of change stands still for
// two minutes: so long a run may have to wait behind one that was killed elsewhere. A process that is stopped
// for longer loses its lock to a run on another machine. Works on any file system that creates and renames
// atomically, NFS among them, and asks for no synchronous clocks.
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

  /// Takes the lock of the file at `path`; makes its folder. Throws Error that says who is at work where
  /// another run has it; returns null where a signal to stop (base/process/stop_signal.h) came while it
  /// looked whether that run still lives. `patience`: how long a lock stands still that is of a dead run. One
  /// rank of the run.
  static std::unique_ptr<LockFile> take(const std::string& path, const std::string& job_id, const Log& log,
                                        std::chrono::seconds patience = kPatience);
  ~LockFile();  ///< gives it back
  LockFile(const LockFile&) = delete;
  LockFile& operator=(const LockFile&) = delete;

  /// Throws Error when another run has taken it over: what this one made must not be published.
  void check() const;

 private:
  LockFile(std::string lock, std::string text);
  void renew();

  std::string path_, text_;  // of the lock
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread renewer_;  // last: the others stand before it starts
};

}  // namespace headspan
