#include "io/archive/level_models.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/checked.h"
#include "io/archive/kv_codec.h"

namespace headspan {
namespace {

constexpr int kMost = 31;             // levels of either sign that have symbols of their own
constexpr double kRare = 1.0 / 8192;  // levels that are rarer than this together are escaped
constexpr double kWide = 4;           // deviations of more steps than this are coded in coarser symbols

/// The distribution of sizes: |x| in deviations.
class Shape {
 public:
  explicit Shape(const std::vector<double>& counts) : masses_(counts) {
    HS_ASSERT(counts.size() == kShapeBins + 1);
    const double sum = std::accumulate(counts.begin(), counts.end(), 0.0);
    HS_ASSERT(std::isfinite(sum) && sum > 0);
    below_.push_back(0);
    moment_below_.push_back(0);
    for (std::size_t bin = 0; bin < masses_.size(); ++bin) {
      masses_[bin] /= sum;
      below_.push_back(below_.back() + masses_[bin]);
      moment_below_.push_back(moment_below_.back() +
                              masses_[bin] * (static_cast<double>(bin) + 0.5) / kBinsPerDeviation);
    }
  }

  double below(double size) const { return interpolated(below_, size); }

  /// The share of sizes in a range, and their mean, which is the middle of the range where there are none.
  double mass(double low, double high) const { return std::max(0.0, below(high) - below(low)); }
  double mean(double low, double high) const {
    const double share = mass(low, high);
    const double found = (moment(high) - moment(low)) / share;
    return share > 1e-12 && found > low && found < high ? found : (low + high) / 2;
  }

 private:
  static double interpolated(const std::vector<double>& sums, double size) {
    const double at = std::clamp(size * kBinsPerDeviation, 0.0, static_cast<double>(kShapeBins));
    const auto bin = std::min(static_cast<std::size_t>(at), std::size_t{kShapeBins - 1});
    return sums[bin] + (at - static_cast<double>(bin)) * (sums[bin + 1] - sums[bin]);
  }

  /// The sum of sizes below `size`, weighted by mass; numbers of a bin are spread evenly.
  double moment(double size) const {
    const double at = std::clamp(size * kBinsPerDeviation, 0.0, static_cast<double>(kShapeBins));
    const auto bin = std::min(static_cast<std::size_t>(at), std::size_t{kShapeBins - 1});
    const double part = at - static_cast<double>(bin);
    return moment_below_[bin] +
           masses_[bin] * part * (static_cast<double>(bin) + part / 2) / kBinsPerDeviation;
  }

  std::vector<double> masses_, below_, moment_below_;
};

/// Levels of coefficients with this deviation, in steps.
class Levels {
 public:
  Levels(const Shape& shape, double deviation) : shape_(shape), deviation_(deviation) {}

  /// Where the coefficients of level n > 0 begin; those of 0 end at begin(1).
  static double begin(double level) { return level - kRounding; }

  /// The probability of levels low .. high, of any signs.
  double probability(double low, double high) const {
    if (low > 0) return shape_.mass(begin(low) / deviation_, begin(high + 1) / deviation_) / 2;
    if (high < 0) return probability(-high, -low);
    return shape_.below(begin(1) / deviation_) + (low < 0 ? probability(1, -low) : 0) +
           (high > 0 ? probability(1, high) : 0);
  }

  double beyond(double level) const { return 1 - shape_.below(begin(level + 1) / deviation_); }

  /// The mean size of coefficients with sizes of levels low .. high, in steps.
  double mean(double low, double high) const {
    return deviation_ * shape_.mean(begin(low) / deviation_, begin(high + 1) / deviation_);
  }

 private:
  const Shape& shape_;
  double deviation_;
};

LevelModel model_of(const Shape& shape, double deviation) {
  const int shift = std::max(0, static_cast<int>(std::ceil(std::log2(deviation / kWide))));
  const double width = 1 << shift;
  const Levels levels(shape, deviation);
  int most = 1;
  while (most < kMost && levels.beyond((most + 1) * width - 1) > kRare) ++most;
  std::vector<double> probabilities;
  for (int symbol = -most; symbol <= most; ++symbol)
    probabilities.push_back(levels.probability(symbol * width, (symbol + 1) * width - 1));
  probabilities.push_back(
      std::max(0.0, 1 - std::accumulate(probabilities.begin(), probabilities.end(), 0.0)));
  LevelModel model{slots_of(probabilities), shift, 0, 0};
  if (shift > 0) return model;
  model.offset_of_one = static_cast<float>(1 - levels.mean(1, 1));
  double sum = 0, mass = 0;
  for (int level = 2; level <= most; ++level) {
    const double probability = levels.probability(level, level);
    sum += probability * (level - levels.mean(level, level));
    mass += probability;
  }
  model.offset_of_more = mass > 0 ? static_cast<float>(sum / mass) : model.offset_of_one;
  return model;
}

}  // namespace

std::vector<LevelModel> make_level_models(const std::vector<double>& shape) {
  const Shape found(shape);
  std::vector<LevelModel> models;
  for (int i = 0; i < kLevelModels; ++i)
    models.push_back(model_of(found, std::exp2(static_cast<double>(kLowestDeviation + i) / kPerOctave)));
  return models;
}

}  // namespace headspan
