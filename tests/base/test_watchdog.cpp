#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/process/watchdog.h"

namespace headspan {
namespace {

using std::chrono::milliseconds;

/// Returns the failures that a watchdog reports of work whose status is a function of the number of the poll,
/// until three periods after the first report, or for twelve polls.
std::vector<std::string> reported(milliseconds timeout, const std::function<Watchdog::Status(int)>& work) {
  std::vector<std::string> failures;
  std::atomic<int> polls{0}, reports{0};
  {
    const Watchdog watchdog(
        timeout, [&] { return work(polls++); },
        [&](const std::string& what) {
          failures.push_back(what);
          ++reports;
        });
    while (polls < 12 && reports == 0) std::this_thread::sleep_for(milliseconds(10));
    if (reports > 0) std::this_thread::sleep_for(milliseconds(300));
  }
  return failures;
}

TEST(Watchdog, ReportsAStepThatHangsOnce) {
  const auto failures = reported(milliseconds(300), [](int) { return Watchdog::Status{7, true, ""}; });

  ASSERT_EQ(failures.size(), 1U);
  EXPECT_NE(failures[0].find("another rank hangs"), std::string::npos) << failures[0];
}

TEST(Watchdog, AllowsAStepItsTime) {
  EXPECT_TRUE(reported(milliseconds(60000), [](int) { return Watchdog::Status{7, true, ""}; }).empty());
}

TEST(Watchdog, CountsOnlyTheStepThatRuns) {
  const auto moving = [](int poll) { return Watchdog::Status{poll / 2, true, ""}; };  // two polls each
  const auto waiting = [](int) { return Watchdog::Status{7, false, ""}; };            // not begun

  EXPECT_TRUE(reported(milliseconds(300), moving).empty());
  EXPECT_TRUE(reported(milliseconds(300), waiting).empty());
}

TEST(Watchdog, ReportsAnErrorAtOnce) {
  const auto failures = reported(milliseconds(60000), [](int poll) {
    return Watchdog::Status{poll, true, poll == 2 ? "the link is down" : ""};
  });

  EXPECT_EQ(failures, std::vector<std::string>{"the link is down"});
}

TEST(Watchdog, EndsWithoutWaitingForItsTimeout) {
  const auto begin = std::chrono::steady_clock::now();

  {
    const Watchdog watchdog(
        milliseconds(60000),
        [] {
          return Watchdog::Status{0, true, ""};
        },
        [](const std::string&) {});
  }

  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(20000));
}

}  // namespace
}  // namespace headspan
