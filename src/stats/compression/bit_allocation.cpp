#include "stats/compression/bit_allocation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/checked.h"

namespace headspan {
namespace {

constexpr std::array<int, 8> kWidths{8, 7, 6, 5, 4, 3, 2, 1};
constexpr std::size_t kCells = 128;  // most cells of latents, at whose beginnings bands may begin

/// How a block is stored.
struct Choice {
  std::vector<Band> bands;
  double loss = 0;
  std::int64_t bytes = 0;

  double cost(double price) const { return loss + price * static_cast<double>(bytes); }
};

/// Finds the best bands that share a gain for any price of a byte. In wide blocks eight neighbours have the
/// same bits, so that bands are whole bytes, which kernels read faster.
class ColumnSearch {
 public:
  explicit ColumnSearch(const Spectrum& spectrum) : spectrum_(spectrum) {
    for (const int bits : kWidths) errors_.push_back(normal_error(bits));
  }

  Choice choose(double price) const {
    Choice choice;
    const std::size_t cell = spectrum_.size() < kWide ? 1 : kAlike;
    for (std::size_t i = 0; i < spectrum_.size(); i += cell) {
      const auto first = spectrum_.begin() + static_cast<std::ptrdiff_t>(i);
      const auto columns = static_cast<std::ptrdiff_t>(std::min(cell, spectrum_.size() - i));
      const double variance = std::accumulate(first, first + columns, 0.0);
      std::size_t best = kWidths.size();  // dropped
      double least = variance;
      for (std::size_t w = 0; w < kWidths.size(); ++w) {
        const double cost = variance * errors_[w] + price * static_cast<double>(kWidths[w] * columns) / 8;
        if (cost >= least) continue;
        least = cost;
        best = w;
      }
      choice.loss += best == kWidths.size() ? variance : variance * errors_[best];
      if (best == kWidths.size()) continue;
      if (choice.bands.empty() || choice.bands.back().bits != kWidths[best])
        choice.bands.push_back({0, kWidths[best], Coding::gain, 1, 1, !choice.bands.empty()});
      choice.bands.back().columns += columns;
    }
    for (const Band& band : choice.bands) choice.bytes += band_bytes(band);
    return choice;
  }

 private:
  static constexpr std::size_t kWide = 64, kAlike = 8;

  const Spectrum& spectrum_;
  std::vector<double> errors_;  // [widths]
};

/// Finds the best bands of one block for any price of a byte.
class BandSearch {
 public:
  explicit BandSearch(const Spectrum& spectrum) {
    const std::size_t step = std::max<std::size_t>(1, (spectrum.size() + kCells - 1) / kCells);
    for (std::size_t i = 0; i < spectrum.size(); i += step) {
      const std::size_t last = std::min(spectrum.size(), i + step);
      begin_.push_back(static_cast<std::int64_t>(i));
      cell_.push_back(std::accumulate(spectrum.begin() + static_cast<std::ptrdiff_t>(i),
                                      spectrum.begin() + static_cast<std::ptrdiff_t>(last), 0.0) /
                      static_cast<double>(last - i));
    }
    begin_.push_back(static_cast<std::int64_t>(spectrum.size()));
    dropped_.assign(begin_.size(), 0.0);
    for (std::size_t c = cell_.size(); c-- > 0;) dropped_[c] = dropped_[c + 1] + cell_[c] * columns(c, c + 1);
    fill_errors(spectrum);
  }

  Choice choose(double price) const {
    const std::size_t cells = cell_.size();
    std::vector<double> best(dropped_);           // least cost of the latents from a cell on
    std::vector<std::size_t> next(cells + 1, 0);  // end of the band that begins here; 0: dropped
    std::vector<std::size_t> width(cells + 1, 0);
    const auto try_band = [&](std::size_t first, std::size_t last, std::size_t w) {
      const double cost =
          error(first, last, w) + price * static_cast<double>(bytes(first, last, w)) + best[last];
      if (cost >= best[first]) return;
      best[first] = cost;
      next[first] = last;
      width[first] = w;
    };
    for (std::size_t first = cells; first-- > 0;)
      for (std::size_t last = first + 1; last <= cells; ++last)
        for (std::size_t w = 0; w < kWidths.size(); ++w) try_band(first, last, w);
    Choice choice;
    std::size_t at = 0;
    for (; next[at] != 0; at = next[at]) {
      choice.bands.push_back({begin_[next[at]] - begin_[at], kWidths[width[at]]});
      choice.loss += error(at, next[at], width[at]);
      choice.bytes += bytes(at, next[at], width[at]);
    }
    choice.loss += dropped_[at];
    return choice;
  }

 private:
  double columns(std::size_t first, std::size_t last) const {
    return static_cast<double>(begin_[last] - begin_[first]);
  }
  std::int64_t bytes(std::size_t first, std::size_t last, std::size_t w) const {
    return band_bytes({begin_[last] - begin_[first], kWidths[w]});
  }
  std::size_t index(std::size_t first, std::size_t last, std::size_t w) const {
    return (first * begin_.size() + last) * kWidths.size() + w;
  }
  double error(std::size_t first, std::size_t last, std::size_t w) const {
    return static_cast<double>(errors_[index(first, last, w)]);
  }

  void fill_errors(const Spectrum& spectrum) {
    errors_.assign(begin_.size() * begin_.size() * kWidths.size(), 0);
#pragma omp parallel for schedule(dynamic)
    for (std::size_t first = 0; first < cell_.size(); ++first)
      for (std::size_t last = first + 1; last <= cell_.size(); ++last)
        for (std::size_t w = 0; w < kWidths.size(); ++w) {
          const double step =
              expected_step(&spectrum[to_size(begin_[first])], begin_[last] - begin_[first], kWidths[w]);
          errors_[index(first, last, w)] = static_cast<float>(error_of_step(first, last, step));
        }
  }

  /// Returns the error of cells first .. last if they are quantised with this step.
  double error_of_step(std::size_t first, std::size_t last, double step) const {
    double sum = 0;
    for (std::size_t c = first; c < last; ++c) sum += quantisation_error(cell_[c], step) * columns(c, c + 1);
    return sum;
  }

  std::vector<std::int64_t> begin_;  // [cells + 1] first latent
  std::vector<double> cell_;         // [cells] mean eigenvalue
  std::vector<double> dropped_;      // [cells + 1] loss if everything from a cell on is dropped
  std::vector<float> errors_;        // [first cell, last cell, width]
};

}  // namespace

double quantisation_error(double variance, double step) {
  if (step <= 0) return 0;
  const double square = step * step, ratio = variance / square;
  if (ratio < 0.05)
    return square / 4 - step * std::sqrt(2 * variance / M_PI) + variance;  // only the inner two levels
  double sum = 0;
  for (int n = 1; n <= 4; ++n) sum += std::exp(-2 * M_PI * M_PI * n * n * ratio) / (n * n);
  return square / 12 + square / (M_PI * M_PI) * sum;
}

double normal_error(int bits) {
  const double step = normal_step(bits);
  const auto below = [](double x) { return std::erfc(-x / std::sqrt(2.0)) / 2; };
  const auto density = [](double x) { return std::exp(-x * x / 2) / std::sqrt(2 * M_PI); };
  const auto levels = static_cast<int>(std::exp2(bits - 1));
  double sum =
      0;  // of (x - level)^2 over the positive half: E[x^2] - 2 level E[x] + level^2 on each interval
  for (int k = 0; k < levels; ++k) {
    const bool last = k + 1 == levels;
    const double from = k * step, to = (k + 1) * step, level = from + step / 2;
    const double mass = (last ? 1 : below(to)) - below(from),
                 first = density(from) - (last ? 0 : density(to)),
                 second = mass + from * density(from) - (last ? 0 : to * density(to));
    sum += second - 2 * level * first + level * level * mass;
  }
  return 2 * sum;
}

double expected_step(const double* variances, std::int64_t count, int bits) {
  double largest = 0;  // of the expected squares: among k Gaussians about 1 + 1.5 ln k times the variance
  for (std::int64_t k = 0; k < count; ++k)
    largest = std::max(largest, variances[k] * (1 + 1.5 * std::log(static_cast<double>(k + 1))));
  return std::sqrt(largest) / (std::exp2(bits - 1) - 0.5);
}

Allocation allocate_bits(const std::vector<BlockSpectra>& spectra, double bytes) {
  std::vector<BandSearch> steps;
  std::vector<ColumnSearch> gains;
  for (const BlockSpectra& block : spectra) {
    steps.emplace_back(block.steps);
    gains.emplace_back(block.gain);
  }
  std::vector<Choice> choices(spectra.size());
  const auto total = [&](double price) {
#pragma omp parallel for schedule(dynamic)
    for (std::size_t b = 0; b < choices.size(); ++b) {
      choices[b] = spectra[b].steps.empty() ? gains[b].choose(price) : steps[b].choose(price);
      if (spectra[b].steps.empty() || spectra[b].gain.empty()) continue;
      Choice with_gain = gains[b].choose(price);
      if (with_gain.cost(price) < choices[b].cost(price)) choices[b] = std::move(with_gain);
    }
    return std::accumulate(choices.begin(), choices.end(), std::int64_t{0},
                           [](std::int64_t sum, const auto& choice) { return sum + choice.bytes; });
  };
  double largest = std::numeric_limits<double>::min();
  for (const BlockSpectra& block : spectra)
    for (const Spectrum* spectrum : {&block.steps, &block.gain})
      for (const double value : *spectrum) largest = std::max(largest, value);
  double low = std::log2(largest) - 80,
         high = std::log2(largest) + 1;  // log2 of the price; at `high` nothing is stored
  for (int step = 0; step < 50; ++step) {
    const double middle = (low + high) / 2;
    (static_cast<double>(total(std::exp2(middle))) <= bytes ? high : low) = middle;
  }
  total(std::exp2(high));
  Allocation allocation;
  for (Choice& choice : choices) {
    allocation.bands.push_back(std::move(choice.bands));
    allocation.loss.push_back(choice.loss);
  }
  return allocation;
}

Allocation allocate_columns(const std::vector<Spectrum>& spectra, std::int64_t count) {
  std::vector<std::pair<std::size_t, std::size_t>> order;  // block, latent
  for (std::size_t b = 0; b < spectra.size(); ++b)
    for (std::size_t i = 0; i < spectra[b].size(); ++i) order.emplace_back(b, i);
  std::stable_sort(order.begin(), order.end(), [&](const auto& x, const auto& y) {
    return spectra[x.first][x.second] > spectra[y.first][y.second];
  });
  Allocation allocation{std::vector<std::vector<Band>>(spectra.size()), std::vector<double>(spectra.size())};
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto [block, latent] = order[k];
    if (static_cast<std::int64_t>(k) >= count)
      allocation.loss[block] += spectra[block][latent];
    else if (allocation.bands[block].empty())
      allocation.bands[block].push_back({1});
    else
      ++allocation.bands[block].front().columns;
  }
  return allocation;
}

Allocation allocate_bands(const std::vector<Spectrum>& spectra, const std::vector<Band>& bands) {
  Allocation allocation;
  for (const Spectrum& spectrum : spectra) {
    std::int64_t at = 0;
    double loss = 0;
    for (const Band& band : bands) {
      const double* values = spectrum.data() + at;
      const double step = expected_step(values, band.columns, band.bits);
      for (std::int64_t i = 0; i < band.columns; ++i) loss += quantisation_error(values[i], step);
      at += band.columns;
    }
    allocation.bands.push_back(bands);
    allocation.loss.push_back(
        std::accumulate(spectrum.begin() + static_cast<std::ptrdiff_t>(at), spectrum.end(), loss));
  }
  return allocation;
}

}  // namespace headspan
