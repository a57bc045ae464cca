// Watchdog: a thread that watches asynchronous work, such as that of a GPU, for which no call waits that
// could return an error or time out. It polls ten times a second, and reports a failure if the work is in
// error or a step takes longer than a given time. It knows nothing of GPUs.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace headspan {

class Watchdog {
 public:
  /// How far the work is.
  struct Status {
    std::int64_t finished = 0;  ///< steps so far
    bool running = false;       ///< whether the next step has begun; a step may wait forever to begin
    std::string error;          ///< what is wrong; empty: nothing
  };

  /// Calls both functions on the watchdog's own thread: `poll` until `on_failure` has been called once. A
  /// step may run for `timeout`, which is counted in polls, so that time in which the whole process is
  /// stopped does not count.
  Watchdog(std::chrono::milliseconds timeout, std::function<Status()> poll,
           std::function<void(const std::string& what)> on_failure);
  /// A step that began now and says nothing: calls `on_timeout` unless the watchdog ends before.
  Watchdog(std::chrono::milliseconds timeout, const std::function<void()>& on_timeout);
  /// Waits for a call that is under way.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run();

  std::chrono::milliseconds timeout_;
  std::function<Status()> poll_;
  std::function<void(const std::string&)> on_failure_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;  // last: it starts when the other members exist
};

}  // namespace headspan
