#include <gtest/gtest.h>

#include "base/profile.h"

namespace headspan {
namespace {

using Seconds = std::vector<std::pair<std::string, double>>;

TEST(Profile, AddsUpAPhaseThatIsEnteredAgain) {
  double now = 100;
  Profile profile([&] { return now; });
  for (const double took : {1.0, 2.5}) {
    now += 10;  // in no phase
    const Profile::Phase phase = profile.enter("forward");
    now += took;
  }
  now += 10;

  EXPECT_EQ(profile.seconds(), Seconds({{"forward", 3.5}}));
  EXPECT_EQ(profile.seconds("forward"), 3.5);
  EXPECT_EQ(profile.seconds("gram"), 0);
}

TEST(Profile, CountsAPhaseWithinAnotherOnce) {
  double now = 0;
  Profile profile([&] { return now; });
  {
    const Profile::Phase outer = profile.enter("pairs");
    now += 1;
    {
      const Profile::Phase inner = profile.enter("heads");
      now += 2;
    }
    now += 4;
    const Profile::Phase again = profile.enter("heads");
    now += 8;
  }

  EXPECT_EQ(profile.seconds(), Seconds({{"pairs", 5}, {"heads", 10}}));
}

TEST(Profile, LeavesAPhaseThatThrows) {
  double now = 0;
  Profile profile([&] { return now; });
  try {
    [[maybe_unused]] const Profile::Phase phase = profile.enter("load");
    now += 1;
    throw std::runtime_error("unreadable");
  } catch (const std::runtime_error&) {
  }
  now += 5;
  {
    const Profile::Phase phase = profile.enter("publish");
    now += 0.25;
  }

  EXPECT_EQ(profile_fields(profile), LogFields({{"load", "1.000"}, {"publish", "0.250"}}));
}

}  // namespace
}  // namespace headspan
