// When a run saves its state and when it stops: by run.save_minutes, run.time_limit and the signals of
// base/process/stop_signal.h.
#pragma once

#include "app/job/job.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Thrown on all ranks of a group when their work has to stop.
struct Stopped {
  bool state_saved;  ///< whether the next run resumes from here; else it begins where this one did
};

/// Returns on all ranks whether any of them has seen a stop signal. Collective over comm.
bool stop_signal_seen(const Comm& comm);

/// Throws Stopped if any rank has seen a stop signal. Work that saves no state calls it between its steps.
/// Collective over comm.
void stop_where_asked(const Comm& comm);

class RunClock {
 public:
  /// Starts the clocks of run.time_limit and run.save_minutes.
  explicit RunClock(const Job::Run& rule);

  enum class Step { go_on, save, save_and_stop };

  /// Returns what to do now, the same on all ranks of `group`: stop when any rank has seen a signal or
  /// reached the time limit; save when save_minutes have passed on any rank's clock. Collective over group.
  Step next(const Comm& group) const;

  /// Restarts the clock of run.save_minutes. Local.
  void saved();

 private:
  Job::Run rule_;
  double start_;
  double last_save_;
};

}  // namespace headspan
