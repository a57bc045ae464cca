// SIGUSR1 and SIGTERM as a wish to stop: Slurm sends the first some time before a job's end (--signal), and
// the second when it ends it. The handlers only take note; who has long work asks between its steps.
#pragma once

namespace headspan {

/// From now on the two signals are noted instead of ending the process. Once, at the start.
void catch_stop_signals();

/// Whether one of them has come to this process.
bool stop_signal_seen();

}  // namespace headspan
