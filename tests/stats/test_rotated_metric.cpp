// The metric of keys before their rotation: against products of matrices, and over a whole turn in closed
// form.
#include <cmath>

#include <gtest/gtest.h>

#include "stats/compression/rotated_metric.h"
#include "support/dense.h"

namespace headspan {
namespace {

/// R: rotates coordinates i and i + pairs by angles[i].
Dense rotation(const std::vector<double>& angles, std::int64_t d) {
  const auto pairs = static_cast<std::int64_t>(angles.size());
  Dense r(d, d);
  for (std::int64_t i = 0; i < d; ++i) r(i, i) = 1;
  for (std::int64_t i = 0; i < pairs; ++i) {
    const double c = std::cos(angles[static_cast<std::size_t>(i)]),
                 s = std::sin(angles[static_cast<std::size_t>(i)]);
    r(i, i) = c;
    r(i, i + pairs) = -s;
    r(i + pairs, i) = s;
    r(i + pairs, i + pairs) = c;
  }
  return r;
}

TEST(RotatedMetric, is_the_mean_over_distances) {
  const std::int64_t d = 5;  // of which 4 coordinates are rotated
  const auto metrics = random_metrics(2, d, 3);
  const std::vector<std::vector<double>> angles{{0, 0}, {0.3, 2}, {-1, 4}};

  const std::vector<double> found = rotated_metric(joined(metrics), d, {{0, 0, 0.3, 2, -1, 4}, 2});

  for (std::size_t head = 0; head < 2; ++head)
    for (std::int64_t j = 0; j < d; ++j)
      for (std::int64_t i = 0; i < d; ++i) {
        double expected = 0;
        for (const auto& of_distance : angles) {
          const Dense r = rotation(of_distance, d);
          expected += (r.transposed() * metrics[head] * r)(i, j) / 3;
        }
        EXPECT_NEAR(found[head * 25 + static_cast<std::size_t>(i + j * d)], expected, 1e-12);
      }
}

// Over a whole turn of a pair nothing but half of its trace is left, on the diagonal.
TEST(RotatedMetric, loses_directions_over_a_whole_turn) {
  const auto metrics = random_metrics(1, 2, 5);
  RotationAngles turn{{}, 1};
  for (int i = 0; i < 12; ++i) turn.angles.push_back(M_PI / 6 * i);

  const std::vector<double> found = rotated_metric(joined(metrics), 2, turn);

  const double half = (metrics[0](0, 0) + metrics[0](1, 1)) / 2;
  const std::vector<double> expected{half, 0, 0, half};
  for (std::size_t k = 0; k < 4; ++k) EXPECT_NEAR(found[k], expected[k], 1e-12);
}

TEST(RotatedMetric, stays_without_a_rotation) {
  const auto metrics = joined(random_metrics(3, 4, 7));
  EXPECT_EQ(rotated_metric(metrics, 4, {}), metrics);
}

}  // namespace
}  // namespace headspan
