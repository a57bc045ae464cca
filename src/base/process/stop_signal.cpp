#include "base/process/stop_signal.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <thread>

#include <unistd.h>

namespace headspan {
namespace {

constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGUSR1};
constexpr std::int64_t kSameKeyPress = 500'000'000;  // ns; some launchers send SIGINT twice for one Ctrl-C

// Global, because a signal handler has nowhere else to write.
std::atomic<bool> seen{false};
std::atomic<std::int64_t> interrupted{0};  // time of the first SIGINT in ns; 0: none yet
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

sigset_t stop_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : kStopSignals) sigaddset(&signals, signal);
  return signals;
}

void record(int signal) {
  seen = true;
  if (signal != SIGINT) return;
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const std::int64_t now = time.tv_sec * std::int64_t{1'000'000'000} + time.tv_nsec;
  std::int64_t first = 0;
  if (interrupted.compare_exchange_strong(first, now) || now - first < kSameKeyPress) return;
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);  // ends the process when this handler returns
}

}  // namespace

void hold_stop_signals() {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

void release_stop_signals() {
  const sigset_t signals = stop_signals();
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
}

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = record;
  action.sa_flags = SA_RESTART;
  for (const int signal : kStopSignals) sigaction(signal, &action, nullptr);
  hold_stop_signals();
  std::thread([] {
    release_stop_signals();
    for (;;) pause();
  }).detach();
}

bool stop_signal_seen() { return seen; }

}  // namespace headspan
