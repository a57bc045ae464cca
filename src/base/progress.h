// Progress of one phase: on a terminal a bar, redrawn at most ten times a second and gone at the end, of
// whose numbers a narrow terminal shows only the first; in a log one key=value line every 30 s and one at the
// end. It runs when it is called: no thread, no signal. On a Log that does not speak it does nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/clock.h"
#include "base/log.h"

namespace headspan {

class Progress {
 public:
  using Clock = std::function<double()>;  // seconds since any fixed point, never going back

  /// A phase of `total` units ("tokens", "pairs"), of which none is done. `context` leads every line of the
  /// log (checkpoint=step3000). `log` must outlive it.
  Progress(const Log& log, std::string phase, std::string unit, std::int64_t total, LogFields context = {},
           Clock clock = steady_seconds);
  ~Progress();  ///< finish()
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// `amount` more units are done.
  void advance(std::int64_t amount);

  /// Clears the bar, or writes the phase's last line. Only the first call acts; the destructor calls it.
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
