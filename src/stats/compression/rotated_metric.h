// Attention's metric of keys before the rotary embedding. An error e in a key at one position changes the
// score of a query q at another by q R e, where R rotates by the distance between them; so e costs e (R^T M
// R) e^T with M the metric (stats/compression/attention_metric.h) of queries before their rotation. Here that
// is averaged over distances.
#pragma once

#include <cstdint>
#include <vector>

namespace headspan {

/// Angles by which coordinates i and i + r/2 are rotated, i < r/2: [distances, r/2]. Others are not rotated.
struct RotationAngles {
  std::vector<double> angles;
  std::int64_t pairs = 0;  ///< r/2
};

/// Returns the mean over distances of R^T M R for each metric M: [heads, d, d], symmetric. Without angles
/// returns the metrics. Local.
std::vector<double> rotated_metric(const std::vector<double>& metrics, std::int64_t d,
                                   const RotationAngles& rotation);

}  // namespace headspan
