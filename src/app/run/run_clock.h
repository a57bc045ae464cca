// When a run saves and when it stops: run.save_minutes, run.time_limit, and the signals of
// base/process/stop_signal.h.
#pragma once

#include "app/job/job.h"
#include "dist/comm/mpi.h"

namespace headspan {

/// Thrown on all ranks of a group alike, out of work that was told to stop.
struct Stopped {
  bool state_saved;  ///< of the unit: the next run goes on from here; else it begins where this one did
};

/// Whether any rank has seen a signal, on all alike. Collective over comm.
bool stop_signal_seen(const Comm& comm);

/// Throws Stopped where one has: between the steps of work that saves nothing. Collective over comm.
void stop_where_asked(const Comm& comm);

class RunClock {
 public:
  /// The time limit counts from here.
  explicit RunClock(const Job::Run& rule);

  enum class Step { go_on, save, save_and_stop };

  /// What to do now, the same on all ranks of `group`: stop where any rank has seen a signal or its time is
  /// up, save where that was last done save_minutes ago by any rank's clock. Collective over group.
  Step next(const Comm& group) const;

  /// Counts save_minutes from now. Local.
  void saved();

 private:
  Job::Run rule_;
  double start_;
  double last_save_;
};

}  // namespace headspan
