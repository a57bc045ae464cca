// Records against the quantiser's definition, written out here a second time.
#include <cmath>
#include <random>

#include <c10/util/Half.h>
#include <gtest/gtest.h>

#include "model/cache/block_pages.h"

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

/// The definition of record_format.h.
std::vector<double> expected(const Band& band, const std::vector<double>& z) {
  std::vector<double> out;
  const double least = *std::min_element(z.begin(), z.end()), largest = *std::max_element(z.begin(), z.end());
  const double half_levels = std::pow(2, band.bits - 1);
  for (const double x : z) {
    if (band.offset) {
      const double base = half(least), step = half((largest - least) / (2 * half_levels - 1));
      const double code = std::nearbyint((x - base) / step);
      out.push_back(base + std::min(2 * half_levels - 1, std::max(0.0, code)) * step);
    } else {
      const double a = half(std::max(std::abs(least), std::abs(largest)) / (half_levels - 0.5));
      const double k = std::nearbyint(x / a - 0.5);
      out.push_back((std::min(half_levels - 1, std::max(-half_levels, k)) + 0.5) * a);
    }
  }
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
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const bool offset : {false, true})
      for (const std::int64_t columns : {1, 7, 8, 13, 64}) {
        const Band band{columns, bits, offset};
        const RecordFormat format({band}, Dtype::float64);
        EXPECT_EQ(format.bytes(), (columns * bits + 7) / 8 + (offset ? 4 : 2));
        const std::vector<double> z = draw(columns, 2.5, static_cast<unsigned>(bits));
        if (offset && columns == 1) continue;  // a step of 0

        const std::vector<double> out = round_trip<double>(format, z), defined = expected(band, z);

        for (std::size_t i = 0; i < z.size(); ++i)
          EXPECT_NEAR(out[i], defined[i], 2e-6 * std::abs(defined[i]) + 1e-6)
              << bits << " bits, column " << i << " of " << columns;
      }
}

TEST(RecordFormat, a_constant_is_kept_with_an_offset_and_zero_without) {
  const std::vector<double> constant(9, -1.5), zeros(9, 0.0);

  EXPECT_EQ(round_trip<double>(RecordFormat({{9, 4, true}}, Dtype::float64), constant), constant);
  EXPECT_EQ(round_trip<double>(RecordFormat({{9, 4, false}}, Dtype::float64), zeros), zeros);
}

TEST(RecordFormat, plain_columns_are_kept_in_the_caches_type) {
  const std::vector<double> z = draw(70 * 5, 1, 3);
  const std::vector<double> wide =
      round_trip<double>(RecordFormat({{5, kPlainBits, false}}, Dtype::float64), z);
  const std::vector<double> halves =
      round_trip<double>(RecordFormat({{5, kPlainBits, false}}, Dtype::float16), z);

  EXPECT_EQ(wide, z);
  for (std::size_t i = 0; i < z.size(); ++i) EXPECT_EQ(halves[i], half(z[i]));
  EXPECT_EQ(RecordFormat({{5, kPlainBits, false}}, Dtype::bfloat16).bytes(), 10);
}

TEST(RecordFormat, mixed_bands_lie_one_behind_the_other_and_pages_begin_anew) {
  const RecordFormat format({{3, 8, false}, {0, 6, false}, {5, 2, false}, {4, kPlainBits, false}},
                            Dtype::float32);
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
  const RecordFormat format({{6, kPlainBits, false}}, Dtype::float32);
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
