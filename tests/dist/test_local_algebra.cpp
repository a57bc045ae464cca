// Small dense matrices of one rank against closed forms and plain loops.
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "dist/matrix/local_algebra.h"

namespace headspan {
namespace {

/// Second differences: its inverse is (min(i, j) + 1)(n - max(i, j)) / (n + 1). NaN above the diagonal.
std::vector<double> second_difference(std::int64_t n) {
  std::vector<double> a(to_size(n * n), 0.0);
  for (std::int64_t j = 0; j < n; ++j) {
    for (std::int64_t i = 0; i < j; ++i) a[to_size(i + j * n)] = NAN;
    a[to_size(j * (n + 1))] = 2;
    if (j + 1 < n) a[to_size(j + 1 + j * n)] = -1;
  }
  return a;
}

// Operands within larger arrays, in all four orientations.
TEST(LocalAlgebra, MultipliesAnyOrientation) {
  constexpr std::int64_t kM = 3, kN = 4, kK = 2, kLeading = 7;
  std::vector<double> a(kLeading * kLeading), b(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] = static_cast<double>(i % 11) - 4;
    b[i] = static_cast<double>(i % 13) - 6;
  }
  const auto element = [](const std::vector<double>& x, bool transposed, std::int64_t row,
                          std::int64_t column) {
    return x[to_size(transposed ? column + row * kLeading : row + column * kLeading)];
  };
  for (const bool turn_a : {false, true})
    for (const bool turn_b : {false, true}) {
      const std::vector<double> c =
          gemm(turn_a ? "T" : "N", turn_b ? "T" : "N", kM, kN, kK, a.data(), kLeading, b.data(), kLeading);
      ASSERT_EQ(c.size(), to_size(kM * kN));
      for (std::int64_t i = 0; i < kM; ++i)
        for (std::int64_t j = 0; j < kN; ++j) {
          double sum = 0;
          for (std::int64_t k = 0; k < kK; ++k) sum += element(a, turn_a, i, k) * element(b, turn_b, k, j);
          EXPECT_EQ(c[to_size(i + j * kM)], sum) << turn_a << turn_b << " " << i << ", " << j;
        }
    }
}

TEST(LocalAlgebra, MirrorsTheLowerTriangleAndNothingElse) {
  constexpr std::int64_t kSize = 3, kLeading = 5;
  std::vector<double> a;
  for (int i = 0; i < kSize * kLeading; ++i) a.push_back(i);

  mirror_lower(a.data(), kSize, kLeading);

  EXPECT_EQ(a, (std::vector<double>{0, 1, 2, 3, 4, 1, 6, 7, 8, 9, 2, 7, 12, 13, 14}));
}

TEST(LocalAlgebra, InvertsFromTheLowerTriangle) {
  for (const std::int64_t n : {1, 2, 5, 40}) {
    std::vector<double> a = second_difference(n);

    ASSERT_TRUE(invert_positive_definite(a.data(), n));

    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = 0; i < n; ++i)
        EXPECT_NEAR(
            a[to_size(i + j * n)],
            static_cast<double>((std::min(i, j) + 1) * (n - std::max(i, j))) / static_cast<double>(n + 1),
            1e-11)
            << n << ": " << i << ", " << j;
  }
}

TEST(LocalAlgebra, RefusesWhatIsNotPositiveDefinite) {
  std::vector<double> indefinite{1, 2, 2, 1}, singular{1, 1, 1, 1};

  EXPECT_FALSE(invert_positive_definite(indefinite.data(), 2));
  EXPECT_FALSE(invert_positive_definite(singular.data(), 2));
}

}  // namespace
}  // namespace headspan
