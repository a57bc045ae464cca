// Progress of one phase. On a terminal: a bar, redrawn at most ten times a second and cleared at the end; a
// narrow terminal shows only the first of its numbers. In a log: one key=value line every 30 s and one at the
// end. It acts only when it is called: no thread, no signal. On a Log that does not speak it does nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/log.h"

namespace headspan {

class Progress {
 public:
  using Clock = std::function<double()>;  // as steady_seconds

  /// Begins a phase of `total` units ("tokens", "pairs"). `context` comes first in every line of the log
  /// (checkpoint=step3000). `log` must outlive the Progress.
  Progress(const Log& log, std::string phase, std::string unit, std::int64_t total, LogFields context = {},
           Clock clock = steady_seconds);
  ~Progress();  ///< finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Adds `amount` to the units that are done.
  void advance(std::int64_t amount);

  /// Clears the bar, or writes the last line of the phase. Only the first call does so.
  void finish();

 private:
  void show();
  void draw_bar() const;
  void write_line() const;
  double rate() const;
  std::string eta() const;

  const Log& log_;
  std::string phase_;
  std::string unit_;
  std::int64_t total_;
  LogFields context_;
  Clock clock_;
  std::int64_t done_ = 0;
  double start_;
  double now_;
  double shown_;
  bool finished_ = false;
};

}  // namespace headspan
