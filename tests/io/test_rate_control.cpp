// Rate control on a curve whose points and middles are known.
#include <gtest/gtest.h>

#include "io/archive/rate_control.h"
#include "support/input_error.h"

namespace headspan {
namespace {

// 4, then 8 steps apart: bits fall by an eighth and by a quarter a step.
const std::vector<RatePoint> kCurve{{-4, 4, 1e-4}, {0, 3.5, 1e-3}, {8, 1.5, 0.1}};

TEST(RateControl, StepOfBitsIsTheSmallestThatFits) {
  EXPECT_EQ(step_for_bits(kCurve, 4), -4);
  EXPECT_EQ(step_for_bits(kCurve, 3.99), -3);
  EXPECT_EQ(step_for_bits(kCurve, 3.5), 0);
  EXPECT_EQ(step_for_bits(kCurve, 3.25), 1);
  EXPECT_EQ(step_for_bits(kCurve, 3.24), 2);
  EXPECT_EQ(step_for_bits(kCurve, 1.5), 8);
}

TEST(RateControl, StepOfLossIsTheLargestThatKeepsIt) {
  EXPECT_EQ(step_for_kl(kCurve, 0.1), 8);
  EXPECT_EQ(step_for_kl(kCurve, 1e-4), -4);
  EXPECT_EQ(step_for_kl(kCurve, 0.0101), 4);  // the logarithm is linear: 1e-2 in the middle
  EXPECT_EQ(step_for_kl(kCurve, 0.0099), 3);
  EXPECT_EQ(step_for_kl(kCurve, 3.17e-4), -2);
}

TEST(RateControl, BitsAtAStep) {
  EXPECT_DOUBLE_EQ(bits_at(kCurve, -4), 4);
  EXPECT_DOUBLE_EQ(bits_at(kCurve, -1), 3.625);
  EXPECT_DOUBLE_EQ(bits_at(kCurve, 2), 3);
  EXPECT_DOUBLE_EQ(bits_at(kCurve, 8), 1.5);
}

TEST(RateControl, BeyondTheCurveIsRefused) {
  EXPECT_EQ(input_error_of([] { step_for_bits(kCurve, 4.5); }),
            "archive.bits = 4.5: is beyond what the codec was measured for; give 1.5 to 4");
  EXPECT_EQ(input_error_of([] { step_for_bits(kCurve, 1); }),
            "archive.bits = 1: is beyond what the codec was measured for; give 1.5 to 4");
  EXPECT_EQ(input_error_of([] { step_for_kl(kCurve, 1); }),
            "archive.kl = 1: is beyond what the codec was measured for; give 0.0001 to 0.1");
}

}  // namespace
}  // namespace headspan
