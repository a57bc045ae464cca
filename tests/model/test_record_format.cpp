// Records against the quantiser's definition, written out here a second time.
#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <set>

#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include "model/cache/block_pages.h"
#include "model/kernels/normal_levels.h"
#include "model/kernels/row_kernels.h"

namespace headspan {
namespace {

std::vector<double> draw(std::int64_t count, double scale, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal(0.3, scale);
  std::vector<double> z(static_cast<std::size_t>(count));
  for (double& value : z) value = normal(engine);
  return z;
}

double half(double x) { return static_cast<double>(static_cast<float>(c10::Half(static_cast<float>(x)))); }

/// The levels of J. Max, "Quantizing for minimum distortion" (1960), Table I, good to three digits: those
/// above 0, by bits.
const std::map<int, std::vector<double>> kMax{
    {2, {0.4528, 1.510}},
    {3, {0.2451, 0.7560, 1.344, 2.152}},
    {4, {0.1284, 0.3881, 0.6568, 0.9424, 1.256, 1.618, 2.069, 2.733}},
    {5,
     {0.06590, 0.1981, 0.3314, 0.4668, 0.6050, 0.7473, 0.8947, 1.049, 1.212, 1.387, 1.577, 1.788, 2.029,
      2.319, 2.692, 3.263}}};

double nearest_level(int bits, double x) {
  double nearest = 0, distance = 1e9;
  for (const float level : normal_levels(bits))
    if (std::abs(x - static_cast<double>(level)) < distance) {
      nearest = static_cast<double>(level);
      distance = std::abs(x - nearest);
    }
  return nearest;
}

std::vector<double> expected_normal(int bits, const std::vector<double>& z) {
  double squares = 0, coded = 0;
  for (const double x : z) squares += x * x;
  std::vector<double> out;
  for (const double x : z) {
    out.push_back(nearest_level(bits, x / std::sqrt(squares / static_cast<double>(z.size()))));
    coded += out.back() * out.back();
  }
  for (double& x : out) x *= half(std::sqrt(squares / coded));
  return out;
}

/// The definition of record_format.h.
std::vector<double> expected(const Band& band, const std::vector<double>& z) {
  if (band.coding == Coding::normal) return expected_normal(band.bits, z);
  const double least = *std::min_element(z.begin(), z.end()), largest = *std::max_element(z.begin(), z.end());
  const double magnitude = std::max(std::abs(least), std::abs(largest));
  const double levels = std::pow(2, band.bits);
  double base = 0, step = 0;
  if (band.coding == Coding::range) {
    base = half(band.clip * least);
    step = half(band.clip * (largest - least) / (levels - 1));
  } else if (band.coding == Coding::symmetric) {
    step = half(magnitude / (levels / 2 - 0.5));
    base = (0.5 - levels / 2) * step;
  } else {
    const double corner = magnitude == largest ? largest : least;
    step = half(band.bits == 8 ? magnitude / 127 : -corner / (levels / 2));
    base = -levels / 2 * step;
  }
  std::vector<double> out;
  for (const double x : z)
    out.push_back(base + step * std::min(levels - 1, std::max(0.0, std::nearbyint((x - base) / step))));
  return out;
}

template <class T>
std::vector<T> round_trip(const RecordFormat& format, const std::vector<double>& z) {
  const std::vector<T> typed(z.begin(), z.end());
  BlockPages pages(format);
  const std::int64_t columns = format.columns(), records = static_cast<std::int64_t>(z.size()) / columns;
  pages.append(typed.data(), records);
  std::vector<T> buffer(static_cast<std::size_t>(records * RecordFormat::leading(columns))), out;
  std::int64_t leading = 0;
  const T* read = pages.read(0, records, 0, columns, buffer.data(), leading);
  for (std::int64_t r = 0; r < records; ++r)
    out.insert(out.end(), read + r * leading, read + r * leading + columns);
  return out;
}

TEST(RecordFormat, coded_bands_follow_the_definition) {
  for (int bits = 1; bits <= 8; ++bits)
    for (const auto& [word, coding] : coding_words())
      for (const std::int64_t columns : {1, 7, 8, 13, 64}) {
        if (coding == Coding::normal && bits > kMostNormalBits) continue;
        if (coding == Coding::gain) continue;  // see below
        const Band band{columns, bits, coding};
        const RecordFormat format({band}, Dtype::float64);
        EXPECT_EQ(format.bytes(), (columns * bits + 7) / 8 + (coding == Coding::range ? 4 : 2));
        const std::vector<double> z = draw(columns, 2.5, static_cast<unsigned>(bits));
        if (coding == Coding::range && columns == 1) continue;  // a step of 0

        const std::vector<double> out = round_trip<double>(format, z), defined = expected(band, z);

        for (std::size_t i = 0; i < z.size(); ++i)
          EXPECT_NEAR(out[i], defined[i], 2e-6 * std::abs(defined[i]) + 1e-6)
              << word << ", " << bits << " bits, column " << i << " of " << columns;
      }
}

TEST(RecordFormat, codes_reach_over_the_clipped_range) {
  const Band band{64, 2, Coding::range, 1, 0.75};
  const std::vector<double> z = draw(band.columns, 2.5, 3), defined = expected(band, z);
  const std::vector<double> out = round_trip<double>(RecordFormat({band}, Dtype::float64), z);

  for (std::size_t i = 0; i < z.size(); ++i)
    EXPECT_NEAR(out[i], defined[i], 2e-6 * std::abs(defined[i]) + 1e-6);
  const double largest = *std::max_element(z.begin(), z.end()),
               read = *std::max_element(out.begin(), out.end());
  EXPECT_NEAR(read, 0.75 * largest, 0.01 * largest);
}

/// The definition of gain_search.h: every multiple tried on every column.
TEST(RecordFormat, a_gain_is_the_one_that_loses_least) {
  const std::vector<Band> bands{
      {5, 8, Coding::gain}, {20, 4, Coding::gain, 1, 1, true}, {39, 2, Coding::gain, 1, 1, true}};
  std::vector<float> weights;
  for (int i = 0; i < 64; ++i) weights.push_back(std::exp(-0.1F * static_cast<float>(i)));
  const RecordFormat format(bands, Dtype::float64, weights);
  EXPECT_EQ(format.bytes(), 2 + 5 + 10 + 10);
  std::set<int> chosen;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::vector<double> z;
    for (const Band& band : bands)
      for (const double x :
           draw(band.columns, 1 / normal_step(band.bits), seed + static_cast<unsigned>(z.size())))
        z.push_back(x);
    if (seed % 2 == 1) z[seed] *= 6;  // beyond the last levels
    double squares = 0;
    std::vector<int> bits;
    for (const Band& band : bands) bits.insert(bits.end(), static_cast<std::size_t>(band.columns), band.bits);
    for (std::size_t i = 0; i < z.size(); ++i) squares += std::pow(normal_step(bits[i]) * z[i], 2);
    std::vector<double> best;
    double least = INFINITY;
    int multiple = 0;
    for (int quarter = -2; quarter <= 5; ++quarter) {
      const double gain = half(std::exp2(quarter / 4.0) * std::sqrt(squares / 64));
      std::vector<double> read;
      double error = 0;
      for (std::size_t i = 0; i < z.size(); ++i) {
        const double levels = std::exp2(bits[i]),
                     code = std::clamp(std::nearbyint(z[i] / gain + levels / 2 - 0.5), 0.0, levels - 1);
        read.push_back((code + 0.5 - levels / 2) * gain);
        error += static_cast<double>(weights[i]) * std::pow(z[i] - read.back(), 2);
      }
      if (error >= least) continue;
      least = error;
      best = read;
      multiple = quarter;
    }
    chosen.insert(multiple);

    const std::vector<double> out = round_trip<double>(format, z);

    for (std::size_t i = 0; i < z.size(); ++i) EXPECT_NEAR(out[i], best[i], 2e-6 * std::abs(best[i]) + 1e-6);
  }
  EXPECT_GE(chosen.size(), 3U) << "every record has the same multiple";
  EXPECT_EQ(round_trip<double>(format, std::vector<double>(64, 0.0)), std::vector<double>(64, 0.0));
}

TEST(RecordFormat, bands_with_one_gain_are_read_at_once) {
  std::vector<Band> bands{{24, 7, Coding::gain}};
  for (const auto& [columns, bits] : {std::pair{64, 4}, {40, 3}, {200, 2}, {5, 2}, {16, 1}})
    bands.push_back({columns, bits, Coding::gain, 1, 1, true});
  const RecordFormat format(bands, Dtype::float32, std::vector<float>(349, 1));
  const std::vector<ColumnRun> runs = format.column_runs(0, format.columns());
  std::vector<std::pair<std::int64_t, int>> found;  // columns, bands
  for (const ColumnRun& run : runs) found.emplace_back(run.count, run.bands);
  EXPECT_EQ(found, (std::vector<std::pair<std::int64_t, int>>{{128, 3}, {200, 1}, {5, 1}, {16, 1}}));

  std::vector<std::byte> record(static_cast<std::size_t>(format.bytes() + format.slack()));
  std::vector<float> z, whole(static_cast<std::size_t>(RecordFormat::leading(format.columns()))), out(208);
  for (const double x : draw(format.columns(), 2, 5)) z.push_back(static_cast<float>(x));
  format.pack(z.data(), record.data());
  format.unpack(record.data(), 1, 0, 0, format.columns(), whole.data(),
                RecordFormat::leading(format.columns()));
  for (const ColumnRun& run : runs) {
    const QuantizedBlock block = format.codes(record.data(), 1, run);
    std::int64_t column = run.first;
    for (int s = 0; s < block.count; column += block.sections[s++].count) {
      const CodedRows& codes = block.sections[s];
      const float base = block.middle[0] - std::exp2(static_cast<float>(codes.bits - 1)) * block.step[0];
      expand_codes(codes, &base, block.step, out.data(), 208);
      for (std::int64_t c = 0; c < codes.count; ++c)
        EXPECT_NEAR(out[static_cast<std::size_t>(c)], whole[static_cast<std::size_t>(column + c)], 1e-4F)
            << column + c;
    }
  }
}

TEST(RecordFormat, a_constant_is_kept_with_an_offset_and_zero_without) {
  const std::vector<double> constant(9, -1.5), zeros(9, 0.0);

  EXPECT_EQ(round_trip<double>(RecordFormat({{9, 4, Coding::range}}, Dtype::float64), constant), constant);
  for (const Coding coding : {Coding::symmetric, Coding::gguf, Coding::normal})
    EXPECT_EQ(round_trip<double>(RecordFormat({{9, 4, coding}}, Dtype::float64), zeros), zeros);
}

TEST(RecordFormat, levels_are_those_that_max_published) {
  for (const auto& [bits, positive] : kMax) {
    const std::vector<float>& levels = normal_levels(bits);
    ASSERT_EQ(levels.size(), 2 * positive.size());
    for (std::size_t i = 0; i < positive.size(); ++i) {
      EXPECT_NEAR(static_cast<double>(levels[positive.size() + i]), positive[i], 1e-3 * positive[i])
          << bits << " bits";
      EXPECT_EQ(levels[positive.size() - 1 - i], -levels[positive.size() + i]);
    }
  }
}

/// Mean squared errors of normal numbers: those of Max's table, of which the gain takes nothing.
TEST(RecordFormat, normal_numbers_lose_what_max_published) {
  const std::map<int, double> lost{{2, 0.1175}, {3, 0.03454}, {4, 0.009497}, {5, 0.002499}};
  constexpr std::int64_t kMany = 200'000;
  std::mt19937 engine(7);
  std::normal_distribution<double> normal;
  std::vector<double> z(kMany);
  for (double& value : z) value = normal(engine);
  for (const auto& [bits, published] : lost) {
    const std::vector<double> out =
        round_trip<double>(RecordFormat({{kMany, bits, Coding::normal}}, Dtype::float64), z);
    double lossless = 0, error = 0;
    for (std::size_t i = 0; i < z.size(); ++i) {
      lossless += z[i] * z[i];
      error += (z[i] - out[i]) * (z[i] - out[i]);
    }
    const double gain = 1 / (1 - published);  // centroids times this have the variance of the numbers
    const double expected = published + (1 - published) * (std::sqrt(gain) - 1) * (std::sqrt(gain) - 1);
    EXPECT_NEAR(error / lossless, expected, 0.02 * expected) << bits << " bits";
  }
}

/// ggml-quants.c of llama.cpp, quantize_row_q4_0_ref: 7 is (int)(x / d + 8.5) with d = -4 / -8.
TEST(RecordFormat, a_block_of_q4_0_keeps_its_largest_number_and_zero) {
  const std::vector<double> z{0, 4, -1.74, 3.9, -4 + 1e-3, 0.26, -0.24, 1};
  const std::vector<double> out = round_trip<double>(RecordFormat({{8, 4, Coding::gguf}}, Dtype::float64), z);
  EXPECT_EQ(out, (std::vector<double>{0, 4, -1.5, 4, -3.5, 0.5, 0, 1}));
}

/// Each column of a group is a band of its own, along the tokens.
TEST(RecordFormat, groups_of_tokens_are_quantised_by_column) {
  for (const std::int64_t columns : {1, 31, 33, 64})
    for (const int bits : {2, 4}) {
      constexpr std::int64_t kTokens = 2 * kGroupTokens + 5;
      const RecordFormat format({{3}, {columns, bits, Coding::range, kGroupTokens}}, Dtype::float64);
      EXPECT_EQ(format.bytes(), 24 + (columns * bits + 7) / 8 + 4 * ((columns + 31) / 32));
      const std::vector<double> z = draw(kTokens * (columns + 3), 2.5, 3),
                                out = round_trip<double>(format, z);

      const auto at = [&](std::int64_t token, std::int64_t column) {
        return static_cast<std::size_t>(token * (columns + 3) + column);
      };
      for (std::int64_t column = 0; column < columns + 3; ++column)
        for (std::int64_t first = 0; first < kTokens; first += kGroupTokens) {
          const std::int64_t count = std::min(kGroupTokens, kTokens - first);
          std::vector<double> values, defined(static_cast<std::size_t>(count), 0.0);
          for (std::int64_t t = 0; t < count; ++t) values.push_back(z[at(first + t, column)]);
          if (column < 3)
            defined = values;
          else if (count == kGroupTokens)
            defined = expected({kGroupTokens, bits, Coding::range}, values);
          for (std::int64_t t = 0; t < count; ++t)
            EXPECT_NEAR(out[at(first + t, column)], defined[static_cast<std::size_t>(t)], 1e-5)
                << columns << " columns, " << bits << " bits, token " << first + t << ", column " << column;
        }
    }
}

TEST(RecordFormat, groups_are_read_from_any_token_and_rewritten) {
  const RecordFormat format({{5, 2, Coding::range, kGroupTokens}}, Dtype::float64);
  const std::vector<double> z = draw(5 * 128, 1, 5), other = draw(5 * 32, 1, 6);
  const std::vector<double> all = round_trip<double>(format, z), changed = round_trip<double>(format, other);
  BlockPages pages(format);
  for (std::int64_t t = 0; t < 128; ++t) pages.append(z.data() + 5 * t, 1);
  pages.rewrite(32, other.data(), 32);

  std::vector<double> part(static_cast<std::size_t>(60 * RecordFormat::leading(5)));
  std::int64_t leading = 0;
  const double* read = pages.read(41, 101, 0, 5, part.data(), leading);

  for (std::int64_t t = 41; t < 101; ++t)
    for (std::int64_t j = 0; j < 5; ++j)
      EXPECT_EQ(read[(t - 41) * leading + j], t < 64 ? changed[static_cast<std::size_t>((t - 32) * 5 + j)]
                                                     : all[static_cast<std::size_t>(t * 5 + j)])
          << t;
}

TEST(RecordFormat, plain_columns_are_kept_in_the_caches_type) {
  const std::vector<double> z = draw(70 * 5, 1, 3);
  const std::vector<double> wide = round_trip<double>(RecordFormat({{5, kPlainBits}}, Dtype::float64), z);
  const std::vector<double> halves = round_trip<double>(RecordFormat({{5, kPlainBits}}, Dtype::float16), z);

  EXPECT_EQ(wide, z);
  for (std::size_t i = 0; i < z.size(); ++i) EXPECT_EQ(halves[i], half(z[i]));
  EXPECT_EQ(RecordFormat({{5, kPlainBits}}, Dtype::bfloat16).bytes(), 10);
}

TEST(RecordFormat, mixed_bands_lie_one_behind_the_other_and_pages_begin_anew) {
  const RecordFormat format({{3, 8}, {0, 6}, {5, 2}, {4, kPlainBits}}, Dtype::float32);
  EXPECT_EQ(format.columns(), 12);
  EXPECT_EQ(format.bytes(), (2 + 3) + (2 + 2) + 16);
  const std::vector<double> z = draw(12 * 150, 1, 5);
  const std::vector<float> all = round_trip<float>(format, z);
  const std::vector<float> typed(z.begin(), z.end());
  BlockPages pages(format);
  pages.append(typed.data(), 100);
  pages.append(typed.data() + 12 * 100, 50);

  std::vector<float> part(static_cast<std::size_t>(20 * RecordFormat::leading(9)));
  std::int64_t leading = 0;
  const float* read = pages.read(60, 80, 3, 9, part.data(), leading);

  ASSERT_EQ(leading, RecordFormat::leading(9));
  const auto distance = static_cast<std::size_t>(leading);
  for (std::size_t t = 0; t < 20; ++t)
    for (std::size_t j = 0; j < 9; ++j) EXPECT_EQ(read[t * distance + j], all[(60 + t) * 12 + 3 + j]);
  for (std::size_t t = 0; t < 150; ++t)
    for (std::size_t j = 8; j < 12; ++j) EXPECT_EQ(all[t * 12 + j], typed[t * 12 + j]);
  EXPECT_EQ(pages.allocated_bytes(), 3 * (64 * format.bytes() + 8));
}

TEST(RecordFormat, plain_pages_of_the_same_type_are_read_where_they_lie) {
  const RecordFormat format({{6, kPlainBits}}, Dtype::float32);
  const std::vector<float> z(6 * 64, 2.0F);
  BlockPages pages(format);
  pages.append(z.data(), 64);
  std::int64_t leading = 0;
  float unused = 0;

  const float* read = pages.read(10, 64, 2, 3, &unused, leading);

  EXPECT_NE(read, &unused);
  EXPECT_EQ(leading, 6);
  EXPECT_EQ(*read, 2.0F);
}

}  // namespace
}  // namespace headspan
