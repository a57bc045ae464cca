// Expected values: the published outputs for seed 1234567 (Rosetta Code, made with Vigna's splitmix64.c).
#include <gtest/gtest.h>

#include "base/splitmix64.h"

namespace headspan {
namespace {

TEST(SplitMix64, AgreesWithThePublishedOutputs) {
  SplitMix64 random(1234567);

  EXPECT_EQ(random.next(), 6457827717110365317u);
  EXPECT_EQ(random.next(), 3203168211198807973u);
  EXPECT_EQ(random.next(), 9817491932198370423u);
  EXPECT_EQ(random.next(), 4593380528125082431u);
  EXPECT_EQ(random.next(), 16408922859458223821u);
}

}  // namespace
}  // namespace headspan
