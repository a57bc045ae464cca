// Models of levels against the closed forms of normal and of Laplace's distributions.
#include <cmath>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "io/archive/kv_codec.h"
#include "io/archive/level_models.h"
#include "small_codec.h"

namespace headspan {
namespace {

/// Returns the histogram of sizes with these probabilities of being below a size.
template <class Below>
std::vector<double> shape_of(const Below& below) {
  std::vector<double> shape;
  for (int bin = 0; bin < kShapeBins; ++bin)
    shape.push_back(below((bin + 1.0) / kBinsPerDeviation) -
                    below(static_cast<double>(bin) / kBinsPerDeviation));
  shape.push_back(1 - below(static_cast<double>(kShapeBins) / kBinsPerDeviation));
  return shape;
}

double normal_below(double size) { return std::erf(size / std::sqrt(2.0)); }

const LevelModel& model_for(const std::vector<LevelModel>& models, double deviation) {
  const double index = std::log2(deviation) * kPerOctave - kLowestDeviation;
  return models.at(to_size(std::lround(index)));
}

TEST(LevelModelsTest, ShareSlotsAsOftenAsLevelsOccur) {
  const auto models = make_level_models(shape_of(normal_below));
  for (const double deviation : {std::exp2(-1.5), 1.0, 4.0}) {
    const LevelModel& model = model_for(models, deviation);
    EXPECT_EQ(model.shift, 0);
    const auto most = static_cast<int>(model.slots.size()) / 2 - 1;
    for (int level = -most; level <= most; ++level) {
      const double size = std::abs(level),
                   expected = level == 0 ? normal_below((1 - kRounding) / deviation)
                                         : (normal_below((size + 1 - kRounding) / deviation) -
                                            normal_below((size - kRounding) / deviation)) /
                                               2;
      EXPECT_NEAR(model.slots[to_size(level + most)], expected * kSlots, 1.5) << deviation << " " << level;
    }
  }
}

// Of Laplace's distribution with deviation 1 / a, sizes beyond s are s + 1 / a on average, and those of a
// range of width w begin at b: b + 1 / a - w / (exp(a w) - 1).
TEST(LevelModelsTest, ReadLevelsAsTheirMeans) {
  const double a = std::sqrt(2.0);
  const auto models = make_level_models(shape_of([&](double size) { return 1 - std::exp(-a * size); }));
  for (const double deviation : {std::exp2(-1.5), 0.5, 1.0, 2.0}) {
    const double rate = a / deviation, mean = 1 / rate - 1 / (std::exp(rate) - 1);
    const LevelModel& model = model_for(models, deviation);
    EXPECT_NEAR(1 - model.offset_of_one, 1 - kRounding + mean, 3e-5 * deviation) << deviation;
    EXPECT_NEAR(model.offset_of_more, model.offset_of_one, 0.01) << deviation;  // the same for every level
  }
}

TEST(LevelModelsTest, CodeNormalNumbersInHardlyMoreThanTheirEntropy) {
  const auto models = make_level_models(shape_of(normal_below));
  const LevelCoder coder(models);
  for (const int index : {0, 10, 36, 60, 100, 150, kLevelModels - 1}) {
    const double deviation = std::exp2(static_cast<double>(kLowestDeviation + index) / kPerOctave);
    const std::int64_t columns = 600;
    const std::vector<int> of_columns(to_size(kTokenClasses * columns), index);
    LevelBlock block{std::vector<std::uint8_t>(kBlockTokens), columns, of_columns.data()};
    std::vector<float> coefficients;
    for (const double x : normal_numbers(kBlockTokens * columns, 9))
      coefficients.push_back(static_cast<float>(x * deviation));
    const double bits = 8.0 * static_cast<double>(coder.encode(block, coefficients.data()).size());
    double entropy = 0;
    for (double level = 0; level < 8 * deviation + 2; ++level) {
      const double p = level == 0 ? normal_below((1 - kRounding) / deviation)
                                  : (normal_below((level + 1 - kRounding) / deviation) -
                                     normal_below((level - kRounding) / deviation)) /
                                        2;
      if (p > 0) entropy -= (level == 0 ? 1 : 2) * p * std::log2(p);
    }
    const double each = (bits - 3 * kBlockTokens - 256) / static_cast<double>(kBlockTokens * columns);
    EXPECT_NEAR(each, entropy, 0.02 + 0.02 * entropy) << deviation;
  }
}

}  // namespace
}  // namespace headspan
