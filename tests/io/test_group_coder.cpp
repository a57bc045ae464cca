// A group of layers: what coding changes, in closed form.
#include <cmath>

#include <gtest/gtest.h>
#include <omp.h>

#include "base/checked.h"
#include "io/archive/group_coder.h"
#include "io/archive/group_synthesis.h"
#include "small_codec.h"
#include "support/input_error.h"

namespace headspan {
namespace {

/// Returns tokens of a group: its mean, and normal numbers in attention's metric.
std::vector<float> tokens_of(const KvCodec& codec, const CodecGroup& group, std::int64_t tokens) {
  const std::int64_t columns = codec.columns(group), d = codec.head_size;
  const std::vector<double> whitened = normal_numbers(tokens * columns, 3);
  std::vector<float> x;
  for (std::int64_t k = 0; k < tokens * columns; ++k) {
    const std::int64_t c = k % columns, head = c / d;
    double value = group.mean[to_size(c)];
    for (std::int64_t i = 0; i < d; ++i)
      value +=
          whitened[to_size(k - c + head * d + i)] * group.unwhitening[to_size((head * d + i) * d + c % d)];
    x.push_back(static_cast<float>(value));
  }
  return x;
}

/// Returns (x - y) S of every column, in float64.
std::vector<double> whitened_difference(const KvCodec& codec, const CodecGroup& group,
                                        const std::vector<float>& x, const std::vector<float>& y) {
  const std::int64_t columns = codec.columns(group), d = codec.head_size;
  std::vector<double> result;
  for (std::size_t k = 0; k < x.size(); ++k) {
    const std::int64_t c = static_cast<std::int64_t>(k) % columns, head = c / d;
    double value = 0;
    for (std::int64_t i = 0; i < d; ++i) {
      const std::size_t from = k - to_size(c) + to_size(head * d + i);
      value += (double{x[from]} - y[from]) * group.whitening[to_size((head * d + i) * d + c % d)];
    }
    result.push_back(value);
  }
  return result;
}

double mean_square(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return sum / static_cast<double>(values.size());
}

std::vector<float> there_and_back(const GroupCoder& coder, const std::vector<float>& x, std::int64_t tokens,
                                  int step) {
  const std::vector<std::uint8_t> bytes = coder.encode(x.data(), tokens, step);
  std::vector<float> y(x.size());
  coder.decode(bytes.data(), static_cast<std::int64_t>(bytes.size()), tokens, step, y.data());
  return y;
}

class GroupCoderTest : public testing::Test {
 protected:
  KvCodec codec_ = small_codec();
  LevelCoder levels_{codec_.models};
};

// With as many coefficients as columns, and many steps in a deviation, what is lost is uniform in a step,
// around 0.5 - kRounding, in attention's metric and whatever the maps. The basis is rounded, which amplifies
// it a little.
TEST_F(GroupCoderTest, LosesATwelfthOfASquaredStep) {
  const double offset = 0.5 - kRounding, expected = 1.0 / 12 + offset * offset;
  const CodecGroup& group = codec_.streams[Stream::k][0];
  const GroupCoder coder(codec_, group, levels_);
  for (const std::int64_t tokens : {1, 5, 128}) {
    const std::vector<float> x = tokens_of(codec_, group, tokens);
    for (const int step : {-4 * kPerOctave, -3 * kPerOctave - 5}) {
      const double size = std::exp2(static_cast<double>(step) / kPerOctave),
                   lost = mean_square(
                       whitened_difference(codec_, group, x, there_and_back(coder, x, tokens, step)));
      EXPECT_NEAR(lost / (size * size * expected), 1, tokens == 128 ? 0.05 : 0.6) << tokens;
    }
  }
}

// Fewer coefficients than columns: what is lost besides is the part outside of the basis, whose share of the
// variance is that of the columns that it lacks.
TEST_F(GroupCoderTest, LosesWhatTheBasisLacks) {
  const CodecGroup& group = codec_.streams[Stream::k][1];  // 5 of 8
  const GroupCoder coder(codec_, group, levels_);
  std::vector<double> lost;
  const std::vector<float> x = tokens_of(codec_, group, 128);
  const std::vector<float> y = there_and_back(coder, x, 128, -4 * kPerOctave);
  EXPECT_NEAR(mean_square(whitened_difference(codec_, group, x, y)), 3.0 / 8, 0.03);
  // what is there already is coded without a loss beyond the step
  EXPECT_LT(
      mean_square(whitened_difference(codec_, group, y, there_and_back(coder, y, 128, -4 * kPerOctave))),
      1e-6);
}

// Directions that are whole columns lose nothing when they are rounded.
TEST_F(GroupCoderTest, TakesABasisThatIsExactlyOrthogonal) {
  CodecGroup group = codec_.streams[Stream::k][0];
  std::fill(group.basis.begin(), group.basis.end(), std::int8_t{0});
  for (std::int64_t j = 0; j < 16; ++j) group.basis[to_size(j * 16 + (j + 3) % 16)] = j % 2 == 0 ? 127 : -127;
  group.scale.assign(16, 1.0F / 127);
  const GroupCoder coder(codec_, group, levels_);
  const std::vector<float> x = tokens_of(codec_, group, 20),
                           y = there_and_back(coder, x, 20, -4 * kPerOctave);
  EXPECT_LT(mean_square(whitened_difference(codec_, group, x, y)), 0.0005);  // a squared step is 0.004
}

TEST_F(GroupCoderTest, BytesDoNotDependOnThreads) {
  const CodecGroup& group = codec_.streams[Stream::v][0];
  const std::vector<float> x = tokens_of(codec_, group, 100);
  const int threads = omp_get_max_threads();
  std::vector<std::vector<std::uint8_t>> found;
  for (const int used : {1, 2, 3}) {
    omp_set_num_threads(used);
    found.push_back(GroupCoder(codec_, group, levels_).encode(x.data(), 100, -20));
  }
  omp_set_num_threads(threads);
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(found[0], found[2]);
}

TEST_F(GroupCoderTest, LargeTokensHaveClassesOfTheirOwn) {
  const CodecGroup& group = codec_.streams[Stream::k][0];
  const GroupCoder coder(codec_, group, levels_);
  std::vector<float> x = tokens_of(codec_, group, 128);
  const auto bits = [&] {
    return 8.0 * static_cast<double>(coder.encode(x.data(), 128, -2 * kPerOctave).size());
  };
  const double small = bits();
  for (std::size_t k = 0; k < x.size(); ++k) {  // eight times as far from the mean
    const float mean = group.mean[k % group.mean.size()];
    x[k] = mean + 8 * (x[k] - mean);
  }
  EXPECT_NEAR((bits() - small) / (128 * 16), 3, 0.05);  // three octaves
}

// Deviations of more steps than the models reach use the last one, and its escapes.
TEST_F(GroupCoderTest, TinyStepsAreCodedToo) {
  const CodecGroup& group = codec_.streams[Stream::k][0];
  const GroupCoder coder(codec_, group, levels_);
  const std::vector<float> x = tokens_of(codec_, group, 128);
  for (const int step : {-9 * kPerOctave, -12 * kPerOctave})
    EXPECT_LT(mean_square(whitened_difference(codec_, group, x, there_and_back(coder, x, 128, step))),
              std::exp2(2.0 * step / kPerOctave) / 12 * 1.2);
}

// Coefficients are rounded to sixteenths of a step, at most; also those that have more than 16 bits of these.
TEST_F(GroupCoderTest, BytesGiveWhatFloatsGive) {
  for (const Stream stream : {Stream::k, Stream::v})
    for (const CodecGroup& group : codec_.streams[stream])
      for (const float step : {0.25F, 1e-3F, 1e-6F})
        for (const std::int64_t count : {group.coefficients(), std::int64_t{3}, std::int64_t{0}}) {
          const std::int64_t tokens = 21, columns = codec_.columns(group);
          std::vector<float> coefficients;
          for (const double normal : normal_numbers(tokens * count, 5))
            coefficients.push_back(step * std::round(static_cast<float>(normal) / step));
          std::vector<float> x(to_size(tokens * columns)), y(x.size());
          GroupSynthesis(codec_, group, true).run(coefficients, tokens, count, step, x.data());
          GroupSynthesis(codec_, group, false).run(coefficients, tokens, count, step, y.data());
          const double error = std::sqrt(mean_square(whitened_difference(codec_, group, x, y)));
          EXPECT_LE(error, step / 16 / std::sqrt(12.0) + 2e-6) << step;
          EXPECT_EQ(error > 0, count > 0) << "nothing was rounded";
        }
}

TEST_F(GroupCoderTest, RefusesWhatItCannotCode) {
  CodecGroup group = codec_.streams[Stream::k][0];
  const GroupCoder coder(codec_, group, levels_);
  std::vector<float> x = tokens_of(codec_, group, 3);
  EXPECT_NE(input_error_of([&] { coder.encode(x.data(), 3, -40 * kPerOctave); }).find("beyond 2^31 steps"),
            std::string::npos);
  x[3] = NAN;
  EXPECT_NE(input_error_of([&] { coder.encode(x.data(), 3, 0); }).find("beyond 2^31 steps"),
            std::string::npos);
  std::copy_n(group.basis.begin(), 16, group.basis.begin() + 16);  // two equal rows
  EXPECT_NE(input_error_of([&] { GroupCoder(codec_, group, levels_); }).find("far from orthogonal"),
            std::string::npos);
}

}  // namespace
}  // namespace headspan
