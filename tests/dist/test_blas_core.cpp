// The choice of OpenBLAS's kernels, against the rule in the header. tests/app/test_blas_choice.py has the
// measurement.
#include <gtest/gtest.h>

#include "dist/blas_core.h"

namespace headspan {
namespace {

TEST(BlasCore, stays_unless_another_is_a_tenth_faster) {
  EXPECT_EQ(choose_core("Zen", {{"Haswell", 109}, {"Zen", 100}}), "Zen");
  EXPECT_EQ(choose_core("Zen", {{"Haswell", 111}, {"Zen", 100}}), "Haswell");
}

TEST(BlasCore, is_the_fastest_of_several) {
  EXPECT_EQ(choose_core("Prescott", {{"Haswell", 90}, {"Prescott", 12}, {"SkylakeX", 160}, {"Zen", 91}}),
            "SkylakeX");
}

TEST(BlasCore, that_does_not_work_is_not_chosen) {
  EXPECT_EQ(choose_core("SkylakeX", {{"Haswell", 50}}), "Haswell");
  EXPECT_EQ(choose_core("Zen", {}), "Zen");
}

}  // namespace
}  // namespace headspan
