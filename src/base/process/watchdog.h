// A thread that looks after work which runs behind the program's back: on a GPU, where nobody waits for it in
// a call that could return an error or run out of time. It looks every tenth of a second and gives up where
// the work is in trouble, or where a step of it takes longer than a given time. Nothing of GPUs in here.
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
  struct Look {
    std::int64_t finished = 0;  ///< steps so far
    bool running = false;       ///< whether the next step has begun: what waits to begin may wait for ever
    std::string trouble;        ///< what is wrong; empty: nothing
  };

  /// Both functions are called on the watchdog's own thread, `give_up` at most once, after which nothing is
  /// looked at any more. `patience`: how long a step may run, counted in looks, so that the time in which the
  /// whole process is stopped does not count.
  Watchdog(std::chrono::milliseconds patience, std::function<Look()> look,
           std::function<void(const std::string& what)> give_up);
  /// Waits for a look or a giving up that is under way.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run();

  std::chrono::milliseconds patience_;
  std::function<Look()> look_;
  std::function<void(const std::string&)> give_up_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool end_ = false;
  std::thread thread_;  // last: the others stand before it starts
};

}  // namespace headspan
