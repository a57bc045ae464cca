// Levels: what is read is what was written, in the bits that the models say.
#include <cmath>

#include <gtest/gtest.h>

#include "base/checked.h"
#include "base/splitmix64.h"
#include "io/archive/level_coder.h"
#include "support/input_error.h"

namespace headspan {
namespace {

/// Models of normal distributions with deviations of 0.5, 2 and 64 steps; the last one's symbols are levels
/// divided by 16.
std::vector<LevelModel> normal_models() {
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  std::vector<LevelModel> models;
  for (const auto& [deviation, most, shift] : {std::tuple(0.5, 2, 0), {2.0, 7, 0}, {64.0, 15, 4}}) {
    std::vector<double> probabilities;
    const double width = 1 << shift;
    for (int symbol = -most; symbol <= most; ++symbol) {
      // the levels low .. high have this symbol
      const double low = symbol * width, high = (symbol + 1) * width - 1;
      const auto edge = [&](double level, bool upper) {  // of the coefficients with this level
        const double inner = std::abs(level) - kRounding, outer = inner + 1;
        if (level == 0) return upper ? 1 - double{kRounding} : double{kRounding} - 1;
        return level > 0 ? (upper ? outer : inner) : (upper ? -inner : -outer);
      };
      probabilities.push_back(below(edge(high, true) / deviation) - below(edge(low, false) / deviation));
    }
    probabilities.push_back(1e-6);
    models.push_back({slots_of(probabilities), shift, shift == 0 ? 0.0625F : 0, shift == 0 ? 0.03125F : 0});
  }
  return models;
}

double normal(SplitMix64& random) {
  const auto uniform = [&] { return (static_cast<double>(random.next() >> 11) + 0.5) * 0x1p-53; };
  return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * M_PI * uniform());
}

/// A block of coefficients, whose tokens of class 1 do without column 1, those of class 7 without column 2.
struct Sample {
  std::int64_t tokens, columns;
  std::vector<int> models;
  LevelBlock block;
  std::vector<float> coefficients;

  Sample(std::int64_t token_count, std::int64_t column_count) : tokens(token_count), columns(column_count) {
    SplitMix64 random(3);
    for (int token_class = 0; token_class < kTokenClasses; ++token_class)
      for (std::int64_t column = 0; column < columns; ++column)
        models.push_back((token_class == 1 && column == 1) || (token_class == 7 && column == 2)
                             ? kNoModel
                             : static_cast<int>((column + token_class) % 3));
    block = {std::vector<std::uint8_t>(to_size(tokens)), columns, models.data()};
    const double deviations[] = {0.5, 2, 64};
    for (std::int64_t token = 0; token < tokens; ++token) {
      block.classes[to_size(token)] = static_cast<std::uint8_t>(random.next() % kTokenClasses);
      for (std::int64_t column = 0; column < columns; ++column) {
        const int model = model_of(token, column);
        coefficients.push_back(model == kNoModel ? 5
                                                 : static_cast<float>(normal(random) * deviations[model]));
      }
    }
  }

  int model_of(std::int64_t token, std::int64_t column) const {
    return models[to_size(block.classes[to_size(token)] * columns + column)];
  }

  /// The coefficient as it should be read.
  float expected(std::int64_t token, std::int64_t column) const {
    const int model = model_of(token, column);
    const float x = coefficients[to_size(token * columns + column)], size = std::abs(x);
    float level = 0;
    for (float half = 0x1p31F; half >= 1; half /= 2)  // the largest that has begun
      if (level + half - kRounding <= size) level += half;
    if (model == kNoModel || level == 0) return 0;
    const bool has_offset = model != 2 && level <= (model == 0 ? 2 : 7);
    if (has_offset) level -= level == 1 ? 0.0625F : 0.03125F;
    return x < 0 ? -level : level;
  }
};

/// Returns the classes and coefficients that the bytes hold.
std::pair<std::vector<std::uint8_t>, std::vector<float>> decoded(const LevelCoder& coder,
                                                                 const Sample& sample,
                                                                 const std::vector<std::uint8_t>& bytes) {
  LevelBlock block{std::vector<std::uint8_t>(to_size(sample.tokens)), sample.columns, sample.models.data()};
  std::vector<float> coefficients(to_size(sample.tokens * sample.columns));
  coder.decode(bytes.data(), static_cast<std::int64_t>(bytes.size()), block, coefficients.data());
  return {block.classes, coefficients};
}

TEST(LevelCoderTest, ReadsLevelsAndClasses) {
  const LevelCoder coder(normal_models());
  for (const std::int64_t tokens : {1, 7, 100, 128})
    for (const std::int64_t columns : {1, 2, 3, 50}) {
      const Sample sample(tokens, columns);
      const auto [classes, coefficients] =
          decoded(coder, sample, coder.encode(sample.block, sample.coefficients.data()));
      EXPECT_EQ(classes, sample.block.classes);
      for (std::int64_t token = 0; token < tokens; ++token)
        for (std::int64_t column = 0; column < columns; ++column)
          ASSERT_EQ(coefficients[to_size(token * columns + column)], sample.expected(token, column));
    }
}

TEST(LevelCoderTest, EscapesWhatModelsDoNotExpect) {
  const LevelCoder coder(normal_models());
  Sample sample(3, 3);
  sample.coefficients = {1e5F, -1e5F, 2e9F, -2e9F, 8, 3, -3, 127.5F, 1e4F};
  const auto [classes, coefficients] =
      decoded(coder, sample, coder.encode(sample.block, sample.coefficients.data()));
  for (std::int64_t token = 0; token < 3; ++token)
    for (std::int64_t column = 0; column < 3; ++column)
      EXPECT_EQ(coefficients[to_size(token * 3 + column)], sample.expected(token, column)) << token << column;
  for (const float x : {3e9F, -3e9F, INFINITY, NAN}) {
    sample.coefficients[0] = x;
    EXPECT_NE(input_error_of([&] {
                coder.encode(sample.block, sample.coefficients.data());
              }).find("are beyond 2^31 steps"),
              std::string::npos);
  }
}

// The entropy of normal numbers in steps of 1 is log2(deviation) + 2.0471 bits if there are many steps. For a
// deviation of 2 the sum over all levels, summed by numpy, is 2.9864: the one in the middle is wide. The
// class of a token takes 3 bits.
TEST(LevelCoderTest, TakesTheBitsOfNormalDistributions) {
  const LevelCoder coder(normal_models());
  const std::int64_t columns = 1000;
  Sample sample(kBlockTokens, columns);
  for (const auto& [model, deviation, bits] : {std::tuple(1, 2.0, 2.9864), {2, 64.0, 8.0471}}) {
    sample.models.assign(sample.models.size(), model);
    SplitMix64 random(5);
    for (float& x : sample.coefficients) x = static_cast<float>(normal(random) * deviation);
    const auto bytes = coder.encode(sample.block, sample.coefficients.data());
    const double each = 8.0 * static_cast<double>(bytes.size()) / (kBlockTokens * columns);
    EXPECT_NEAR(each, bits + 3.0 / columns, 0.015) << deviation;
  }
}

TEST(LevelCoderTest, RefusesDamageAndModelsThatAreNone) {
  const LevelCoder coder(normal_models());
  const Sample sample(100, 20);
  const auto bytes = coder.encode(sample.block, sample.coefficients.data());
  for (std::size_t size = 0; size < bytes.size(); ++size)
    ASSERT_NE(input_error_of([&] {
                decoded(coder, sample, {bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size)});
              }),
              "nothing was refused");
  // A coder without a checksum cannot notice every change, but what it reads is a number.
  SplitMix64 random(13);
  for (int i = 0; i < 2000; ++i) {
    auto changed = bytes;
    for (int k = 0; k < 1 + i % 4; ++k)
      changed[random.next() % changed.size()] ^= static_cast<std::uint8_t>(1 + random.next() % 255);
    std::vector<float> coefficients;
    input_error_of([&] { coefficients = decoded(coder, sample, changed).second; });
    for (const float x : coefficients) ASSERT_TRUE(std::isfinite(x));
  }
  for (const LevelModel& model : {LevelModel{{4096}, 0},
                                  {{2048, 1024, 1024}, 0},
                                  {{2048, 2048}, 13},
                                  {{2048, 2048}, -1},
                                  {{2048, 2048}, 0, NAN, 0}})
    EXPECT_NE(input_error_of([&] { LevelCoder({model}); }), "nothing was refused");
}

}  // namespace
}  // namespace headspan
