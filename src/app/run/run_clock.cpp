#include "app/run/run_clock.h"

#include "base/clock.h"
#include "base/process/stop_signal.h"
#include "base/progress.h"

namespace headspan {

bool stop_signal_seen(const Comm& comm) { return comm.max(stop_signal_seen() ? 1 : 0) != 0; }

void stop_where_asked(const Comm& comm) {
  if (stop_signal_seen(comm)) throw Stopped{false};
}

RunClock::RunClock(const Job::Run& rule) : rule_(rule), start_(steady_seconds()), last_save_(start_) {}

RunClock::Step RunClock::next(const Comm& group) const {
  const double now = steady_seconds();
  const auto past = [now](double since, double minutes) {
    return minutes > 0 && now - since >= 60 * minutes;
  };
  Step step = past(last_save_, rule_.save_minutes) ? Step::save : Step::go_on;
  if (stop_signal_seen() || past(start_, rule_.time_limit)) step = Step::save_and_stop;
  return static_cast<Step>(group.max(static_cast<int>(step)));
}

void RunClock::saved() { last_save_ = steady_seconds(); }

}  // namespace headspan
