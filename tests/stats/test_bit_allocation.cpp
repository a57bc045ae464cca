// Bits of latents against numerical integration and against trying everything.
#include <cmath>

#include <gtest/gtest.h>

#include "stats/compression/bit_allocation.h"

namespace headspan {
namespace {

/// E[(z - level)^2] of a centred Gaussian by the midpoint rule.
double integrated_error(double variance, double step) {
  const double sigma = std::sqrt(variance), width = 16 * sigma / 200000;
  double sum = 0;
  for (int i = 0; i < 200000; ++i) {
    const double z = -8 * sigma + (i + 0.5) * width, level = (std::floor(z / step) + 0.5) * step;
    sum +=
        std::pow(z - level, 2) * std::exp(-z * z / (2 * variance)) / std::sqrt(2 * M_PI * variance) * width;
  }
  return sum;
}

TEST(BitAllocation, quantisation_error_is_that_of_a_gaussian) {
  for (const double step : {1e-3, 0.3, 1.0, 2.0, 4.0, 20.0})
    EXPECT_NEAR(quantisation_error(0.7, step) / integrated_error(0.7, step), 1, 2e-3) << step;
  EXPECT_EQ(quantisation_error(0.0, 2.0), 1.0);  // half a step off
  EXPECT_EQ(quantisation_error(0.5, 0.0), 0.0);
}

std::vector<BlockSpectra> with_steps(const std::vector<Spectrum>& spectra) {
  std::vector<BlockSpectra> blocks;
  for (const Spectrum& spectrum : spectra) blocks.push_back({spectrum, {}});
  return blocks;
}

/// What Max (1960) and later tables have for evenly spaced levels.
TEST(BitAllocation, a_normal_number_loses_what_max_published) {
  const std::vector<std::pair<int, double>> published{
      {1, 0.3634}, {2, 0.1188}, {3, 0.03744}, {4, 0.01154}, {5, 0.00349}};
  for (const auto& [bits, error] : published) EXPECT_NEAR(normal_error(bits) / error, 1, 2e-3) << bits;
  for (int bits = 1; bits <= 8; ++bits) {
    const double step = normal_step(bits);
    double sum = 0;
    for (double x = 0.0005; x < 12; x += 0.001) {
      const double level = (std::min(std::floor(x / step), std::exp2(bits - 1) - 1) + 0.5) * step;
      sum += 2 * std::pow(x - level, 2) * std::exp(-x * x / 2) / std::sqrt(2 * M_PI) * 0.001;
    }
    EXPECT_NEAR(normal_error(bits) / sum, 1, 1e-3) << bits;
  }
}

double loss_of(const Spectrum& spectrum, const std::vector<Band>& bands) {
  std::size_t at = 0;
  double loss = 0;
  for (const Band& band : bands) {
    const double step = expected_step(&spectrum[at], band.columns, band.bits);
    for (const std::size_t last = at + static_cast<std::size_t>(band.columns); at < last; ++at)
      loss += quantisation_error(spectrum[at], step);
  }
  for (; at < spectrum.size(); ++at) loss += spectrum[at];
  return loss;
}

std::int64_t bytes_of(const std::vector<Band>& bands) {
  std::int64_t bytes = 0;
  for (const Band& band : bands) bytes += band_bytes(band);
  return bytes;
}

/// Every way to cut the first latents of `size` into bands.
void all_bands(std::int64_t size, std::vector<Band>& so_far, std::vector<std::vector<Band>>& all) {
  all.push_back(so_far);
  for (std::int64_t columns = 1; columns <= size; ++columns)
    for (int bits = 1; bits <= 8; ++bits) {
      so_far.push_back({columns, bits});
      all_bands(size - columns, so_far, all);
      so_far.pop_back();
    }
}

TEST(BitAllocation, nothing_that_costs_no_more_loses_less) {
  const std::vector<Spectrum> spectra{{9, 2, 0.3, 0.01}, {40, 0.5, 0.4, 0.0}};
  std::vector<std::vector<Band>> all;
  std::vector<Band> none;
  all_bands(4, none, all);
  for (const double bytes : {0.0, 3.0, 5.0, 8.0, 9.0, 12.0, 20.0}) {
    const Allocation found = allocate_bits(with_steps(spectra), bytes);
    const std::int64_t used = bytes_of(found.bands[0]) + bytes_of(found.bands[1]);
    const double loss = found.loss[0] + found.loss[1];

    EXPECT_LE(static_cast<double>(used), bytes);
    for (std::size_t b = 0; b < 2; ++b)
      EXPECT_NEAR(found.loss[b], loss_of(spectra[b], found.bands[b]), 1e-6 * loss);
    double smallest = INFINITY;
    for (const auto& first : all)
      for (const auto& second : all)
        if (bytes_of(first) + bytes_of(second) <= used)
          smallest = std::min(smallest, loss_of(spectra[0], first) + loss_of(spectra[1], second));
    EXPECT_NEAR(loss, smallest, 1e-6 * smallest) << bytes << " bytes";
  }
}

TEST(BitAllocation, uses_what_it_may_and_no_more) {
  std::vector<Spectrum> spectra(3);
  for (std::size_t b = 0; b < 3; ++b)
    for (int i = 0; i < 300; ++i) spectra[b].push_back(std::exp(-0.05 * i * static_cast<double>(b + 1)));
  for (const double bytes : {30.0, 100.0, 300.0}) {
    const Allocation found = allocate_bits(with_steps(spectra), bytes);
    double used = 0;
    for (const auto& bands : found.bands) {
      used += static_cast<double>(bytes_of(bands));
      for (std::size_t i = 1; i < bands.size(); ++i) EXPECT_LE(bands[i].bits, bands[i - 1].bits);
    }
    EXPECT_LE(used, bytes);
    EXPECT_GE(used, 0.8 * bytes);
  }
}

double loss_with_gain(const Spectrum& spectrum, const std::vector<Band>& bands) {
  std::size_t at = 0;
  double loss = 0;
  for (const Band& band : bands)
    for (const std::size_t last = at + static_cast<std::size_t>(band.columns); at < last; ++at)
      loss += spectrum[at] * normal_error(band.bits);
  for (; at < spectrum.size(); ++at) loss += spectrum[at];
  return loss;
}

TEST(BitAllocation, a_gain_is_taken_where_it_loses_less) {
  Spectrum even(64, 1.0), halved(64, 0.5), doubled(64, 2.0);
  for (std::size_t i = 0; i < even.size(); ++i)
    for (Spectrum* one : {&even, &halved, &doubled}) (*one)[i] *= std::exp(-0.05 * static_cast<double>(i));
  const Allocation found = allocate_bits({{even, halved}, {even, doubled}, {{}, even}, {even, {}}}, 100);

  std::int64_t bytes = 0;
  for (const auto& bands : found.bands) bytes += bytes_of(bands);
  EXPECT_LE(bytes, 100);
  EXPECT_GE(bytes, 80);
  const std::vector<bool> gain{true, false, true, false};
  for (std::size_t b = 0; b < gain.size(); ++b) {
    const auto& bands = found.bands[b];
    ASSERT_FALSE(bands.empty()) << b;
    EXPECT_EQ(bands.front().coding == Coding::gain, gain[b]) << b;
    const Spectrum& spectrum = b == 0 ? halved : even;
    EXPECT_NEAR(found.loss[b], gain[b] ? loss_with_gain(spectrum, bands) : loss_of(spectrum, bands), 1e-6);
    for (std::size_t i = 0; i < bands.size(); ++i) EXPECT_EQ(bands[i].follows, gain[b] && i > 0) << b;
  }
  EXPECT_EQ(band_bytes({8, 4, Coding::gain}), 2 + 4);
  EXPECT_EQ(band_bytes({8, 4, Coding::gain, 1, 1, true}), 4);
}

TEST(BitAllocation, whole_columns_go_to_the_largest_eigenvalues) {
  const Allocation found = allocate_columns({{5, 3, 1}, {4, 3, 0.5}}, 3);

  ASSERT_EQ(found.bands[0].size(), 1U);
  EXPECT_EQ(found.bands[0][0].columns, 2);  // the tie goes to the earlier block
  EXPECT_EQ(found.bands[1][0].columns, 1);
  EXPECT_EQ(found.bands[0][0].bits, kPlainBits);
  EXPECT_DOUBLE_EQ(found.loss[0], 1);
  EXPECT_DOUBLE_EQ(found.loss[1], 3.5);
  EXPECT_TRUE(allocate_columns({{5, 3}}, 0).bands[0].empty());
}

TEST(BitAllocation, given_bands_lose_what_they_leave_out) {
  const Spectrum spectrum{4, 1, 0.25, 0.1};
  const std::vector<Band> bands{{1, 8}, {2, 3}};

  const Allocation found = allocate_bands({spectrum, spectrum}, bands);

  EXPECT_EQ(found.bands[1].size(), 2U);
  EXPECT_DOUBLE_EQ(found.loss[1], loss_of(spectrum, bands));
}

}  // namespace
}  // namespace headspan
