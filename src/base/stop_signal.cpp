#include "base/stop_signal.h"

#include <csignal>
#include <initializer_list>

namespace headspan {
namespace {

volatile std::sig_atomic_t seen = 0;  // a signal handler has nowhere else to write

void note(int) { seen = 1; }

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = note;
  action.sa_flags = SA_RESTART;
  for (const int signal : {SIGUSR1, SIGTERM}) sigaction(signal, &action, nullptr);
}

bool stop_signal_seen() { return seen != 0; }

}  // namespace headspan
