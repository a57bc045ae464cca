#include "model/kernels/normal_levels.h"

#include <array>
#include <cmath>

#include "base/bands.h"
#include "base/checked.h"

namespace headspan {
namespace {

/// The probability that a standard normal number lies between a and b, 0 <= a < b.
double probability(double a, double b) {
  return 0.5 * (std::erfc(a / std::sqrt(2.0)) - std::erfc(b / std::sqrt(2.0)));
}

double density(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2 * std::acos(-1.0)); }

/// Lloyd's iteration on the positive levels; the others mirror them.
std::vector<float> find_levels(int bits) {
  constexpr double kFar = 40;  // beyond which nothing is left of the distribution
  const std::size_t half = std::size_t{1} << (bits - 1);
  std::vector<double> level(half);
  for (std::size_t i = 0; i < half; ++i)
    level[i] = 3.0 * (static_cast<double>(i) + 0.5) / static_cast<double>(half);
  for (double change = 1; change > 1e-12;) {
    const std::vector<double> before = level;
    change = 0;
    for (std::size_t i = 0; i < half; ++i) {
      const double low = i == 0 ? 0 : 0.5 * (before[i - 1] + before[i]),
                   high = i + 1 == half ? kFar : 0.5 * (before[i] + before[i + 1]);
      level[i] = (density(low) - density(high)) / probability(low, high);
      change = std::max(change, std::abs(level[i] - before[i]));
    }
  }
  std::vector<float> all;
  for (std::size_t i = half; i-- > 0;) all.push_back(static_cast<float>(-level[i]));
  for (const double positive : level) all.push_back(static_cast<float>(positive));
  return all;
}

}  // namespace

const std::vector<float>& normal_levels(int bits) {
  static const std::array<std::vector<float>, kMostNormalBits> levels = [] {
    std::array<std::vector<float>, kMostNormalBits> found;
    for (int b = 1; b <= kMostNormalBits; ++b) found[to_size(b - 1)] = find_levels(b);
    return found;
  }();
  HS_ASSERT(bits >= 1 && bits <= kMostNormalBits);
  return levels[to_size(bits - 1)];
}

}  // namespace headspan
