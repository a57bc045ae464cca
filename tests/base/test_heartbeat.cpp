#include <chrono>
#include <thread>

#include <arpa/inet.h>
#include <gtest/gtest.h>

#include "base/process/heartbeat.h"

namespace headspan {
namespace {

/// Calls hear() until something comes, for two seconds at most.
Heartbeat::Heard wait_for(const Heartbeat& heartbeat) {
  Heartbeat::Heard heard;
  for (int i = 0; i < 200 && heard.beats == 0; ++i) {
    heard = heartbeat.hear();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return heard;
}

TEST(Heartbeat, IsHeardByTheProcessThatItIsSentTo) {
  const Heartbeat here(7), there(7), elsewhere(7);

  here.send(there.address());

  const Heartbeat::Heard heard = wait_for(there);
  EXPECT_GE(heard.beats, 1);
  EXPECT_FALSE(heard.last);
  EXPECT_EQ(elsewhere.hear().beats, 0);
  here.send(there.address(), true);
  EXPECT_TRUE(wait_for(there).last);
}

TEST(Heartbeat, WithAnotherKeyIsNotHeard) {
  const Heartbeat stranger(8), here(7), there(7);

  stranger.send(there.address(), true);
  here.send(there.address());

  EXPECT_FALSE(wait_for(there).last);
  EXPECT_FALSE(there.hear().last);
}

TEST(Heartbeat, ReachesNobodyWithoutAnAddress) {
  const Heartbeat here(7);

  here.send(HeartbeatAddress{});

  EXPECT_EQ(here.hear().beats, 0);
}

TEST(Heartbeat, NamesNodeAndInterfaces) {
  const Heartbeat here(7);

  EXPECT_NE(here.address().port, 0);
  EXPECT_NE(here.address().host[0], '\0');
  EXPECT_NE(here.address().addresses[0], 0U);
}

}  // namespace
}  // namespace headspan
