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

/// What a watch said of work, which a function of the number of the look shows to it, until it gave up (and
/// three periods later) or had looked twelve times.
std::vector<std::string> said(milliseconds patience, const std::function<Watchdog::Look(int)>& work) {
  std::vector<std::string> words;
  std::atomic<int> looks{0}, given_up{0};
  {
    const Watchdog watch(
        patience, [&] { return work(looks++); },
        [&](const std::string& what) {
          words.push_back(what);
          ++given_up;
        });
    while (looks < 12 && given_up == 0) std::this_thread::sleep_for(milliseconds(10));
    if (given_up > 0) std::this_thread::sleep_for(milliseconds(300));
  }
  return words;
}

TEST(Watchdog, GivesUpOnceOnAStepThatHangs) {
  const auto words = said(milliseconds(300), [](int) { return Watchdog::Look{7, true, ""}; });

  ASSERT_EQ(words.size(), 1U);
  EXPECT_NE(words[0].find("another rank hangs"), std::string::npos) << words[0];
}

TEST(Watchdog, HasPatienceWithAStepThatEndsInTime) {
  EXPECT_TRUE(said(milliseconds(60000), [](int) { return Watchdog::Look{7, true, ""}; }).empty());
}

TEST(Watchdog, CountsOnlyTheStepThatRuns) {
  const auto moving = [](int look) { return Watchdog::Look{look / 2, true, ""}; };  // two looks each
  const auto waiting = [](int) { return Watchdog::Look{7, false, ""}; };            // not begun

  EXPECT_TRUE(said(milliseconds(300), moving).empty());
  EXPECT_TRUE(said(milliseconds(300), waiting).empty());
}

TEST(Watchdog, PassesTroubleOnAtOnce) {
  const auto words = said(milliseconds(60000), [](int look) {
    return Watchdog::Look{look, true, look == 2 ? "the link is down" : ""};
  });

  EXPECT_EQ(words, std::vector<std::string>{"the link is down"});
}

TEST(Watchdog, EndsWithoutWaitingForItsPatience) {
  const auto begin = std::chrono::steady_clock::now();

  {
    const Watchdog watch(
        milliseconds(60000),
        [] {
          return Watchdog::Look{0, true, ""};
        },
        [](const std::string&) {});
  }

  EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(20000));
}

}  // namespace
}  // namespace headspan
