// Signals that arrive while oneDNN multiplies or before they are caught, and the effect of a first and a
// second signal.
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/checked.h"
#include "base/process/stop_signal.h"
#include "dist/onednn.h"

namespace headspan {
namespace {

using std::chrono::milliseconds;

void send(int signal, std::chrono::microseconds later) {
  std::this_thread::sleep_for(later);
  ::kill(::getpid(), signal);
}

/// Returns the exit status of a process that runs `body` and exits with its value.
int status_of(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  ::waitpid(child, &status, 0);
  return status;
}

int wait_until_seen() {
  for (int i = 0; i < 2000 && !stop_signal_seen(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return stop_signal_seen() ? 3 : 4;
}

TEST(StopSignal, EachIsRecorded) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const int status = status_of([signal] {
      catch_stop_signals();
      if (stop_signal_seen()) return 5;
      ::kill(::getpid(), signal);
      return wait_until_seen();
    });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << strsignal(signal) << ": status " << status;
  }
}

TEST(StopSignal, OneThatIsHeldIsRecordedWhenTheyAreCaught) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const int status = status_of([signal] {
      hold_stop_signals();
      ::kill(::getpid(), signal);
      std::this_thread::sleep_for(milliseconds(20));
      if (stop_signal_seen()) return 5;
      catch_stop_signals();
      return wait_until_seen();
    });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << strsignal(signal) << ": status " << status;
  }
}

TEST(StopSignal, OneThatIsHeldEndsTheProcessWhenTheyAreReleased) {
  for (const int signal : {SIGINT, SIGTERM, SIGUSR1}) {
    const int status = status_of([signal] {
      hold_stop_signals();
      ::kill(::getpid(), signal);
      std::this_thread::sleep_for(milliseconds(20));
      release_stop_signals();
      return 5;
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal)
        << strsignal(signal) << ": status " << status;
  }
}

TEST(StopSignal, OnlyASecondInterruptEndsTheProcess) {
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  const int status = status_of([&] {
    catch_stop_signals();
    for (const int signal : {SIGTERM, SIGUSR1, SIGTERM, SIGINT, SIGINT}) send(signal, milliseconds(5));
    std::this_thread::sleep_for(milliseconds(600));
    if (::write(pipes[1], "here", 4) != 4) return 5;
    send(SIGINT, milliseconds(0));
    std::this_thread::sleep_for(milliseconds(5000));
    return 6;
  });
  ::close(pipes[1]);
  char text[5] = {};
  EXPECT_EQ(::read(pipes[0], text, 4), 4) << "ended too early";
  ::close(pipes[0]);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT) << "status " << status;
}

TEST(StopSignal, TheHeapStaysWholeWhileOneDnnMultiplies) {
  if (!has_onednn()) GTEST_SKIP() << "built without oneDNN";
  const int status = status_of([] {
    catch_stop_signals();
    std::thread([] {
      for (;;) send(SIGUSR1, std::chrono::microseconds(200));
    }).detach();
    constexpr std::int64_t kRows = 128, kTokens = 256;
    const auto begin = std::chrono::steady_clock::now();
    for (std::int64_t i = 0; std::chrono::steady_clock::now() - begin < milliseconds(500); ++i) {
      const std::int64_t columns = 64 + i % 7;  // so that blocks of the heap lie elsewhere each time
      const std::vector<float> x(to_size(kTokens * columns), 1.0F), y(to_size(kTokens * kRows), 1.0F);
      std::vector<float> block(to_size(kRows * columns));
      onednn_product(x.data(), columns, y.data(), kRows, kRows, columns, kTokens, block.data());
      if (block.back() != kTokens) return 5;
    }
    return wait_until_seen();
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << "status " << status;
}

}  // namespace
}  // namespace headspan
