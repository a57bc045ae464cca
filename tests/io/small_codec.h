// A codec of a small model that does not exist: its maps and models are right, and mean nothing.
#pragma once

#include <cmath>
#include <vector>

#include "base/checked.h"
#include "base/splitmix64.h"
#include "io/archive/kv_codec.h"

namespace headspan {

/// Returns numbers with deviation 1 and mean 0.
inline std::vector<double> normal_numbers(std::int64_t count, std::uint64_t seed) {
  SplitMix64 random(seed);
  const auto uniform = [&] { return (static_cast<double>(random.next() >> 11) + 0.5) * 0x1p-53; };
  std::vector<double> values(to_size(count));
  for (double& value : values) value = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * M_PI * uniform());
  return values;
}

/// Models of normal distributions, from a deviation of 2^-2 steps on, for twelve octaves.
inline std::vector<LevelModel> normal_models() {
  const auto below = [](double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); };
  std::vector<LevelModel> models;
  for (int i = 0; i < 12 * kPerOctave; ++i) {
    const double deviation = std::exp2(static_cast<double>(i) / kPerOctave - 2);
    const int shift = std::max(0, static_cast<int>(std::ceil(std::log2(deviation / 4)))), most = 20;
    const auto level_begins = [&](double level) {  // smallest coefficient with this level or a larger one
      return level > 0 ? level - kRounding : level - 1 + kRounding;
    };
    std::vector<double> probabilities;
    for (int symbol = -most; symbol <= most; ++symbol)
      probabilities.push_back(below(level_begins((symbol + 1) * (1 << shift)) / deviation) -
                              below(level_begins(symbol * (1 << shift)) / deviation));
    probabilities.push_back(1e-6);
    models.push_back({slots_of(probabilities), shift});
  }
  return models;
}

/// Returns `rows` orthonormal rows of `columns` numbers.
inline std::vector<double> orthonormal_rows(std::int64_t rows, std::int64_t columns, std::uint64_t seed) {
  std::vector<double> q = normal_numbers(rows * columns, seed);
  for (std::int64_t i = 0; i < rows; ++i) {
    double* const row = &q[to_size(i * columns)];
    for (std::int64_t k = 0; k < 2 * i; ++k) {  // twice is enough
      const double* const other = &q[to_size(k % i * columns)];
      double dot = 0;
      for (std::int64_t c = 0; c < columns; ++c) dot += row[c] * other[c];
      for (std::int64_t c = 0; c < columns; ++c) row[c] -= dot * other[c];
    }
    double norm = 0;
    for (std::int64_t c = 0; c < columns; ++c) norm += row[c] * row[c];
    for (std::int64_t c = 0; c < columns; ++c) row[c] /= std::sqrt(norm);
  }
  return q;
}

/// Fills the blocks of S and S^-1: I + u u^T and I - u u^T / (1 + u u).
inline void set_metric(std::int64_t heads, std::int64_t d, CodecGroup& group) {
  const std::vector<double> u = normal_numbers(heads * d, 11);
  for (std::int64_t head = 0; head < heads; ++head) {
    const double* const v = &u[to_size(head * d)];
    double norm = 0;
    for (std::int64_t i = 0; i < d; ++i) norm += v[i] * v[i];
    for (std::int64_t i = 0; i < d; ++i)
      for (std::int64_t j = 0; j < d; ++j) {
        group.whitening.push_back(static_cast<float>((i == j) + v[i] * v[j]));
        group.unwhitening.push_back(static_cast<float>((i == j) - v[i] * v[j] / (1 + norm)));
      }
  }
}

/// A group whose coefficients are expected to have a deviation of 1, in class c of 2^(c - 4) times that.
inline CodecGroup small_group(const KvCodec& codec, std::int64_t first_layer, std::int64_t layers,
                              std::int64_t n) {
  CodecGroup group;
  group.first_layer = first_layer;
  group.layers = layers;
  const std::int64_t columns = codec.columns(group);
  for (const double x : normal_numbers(columns, 5)) group.mean.push_back(static_cast<float>(x));
  set_metric(layers * codec.kv_heads, codec.head_size, group);
  const std::vector<double> rows = orthonormal_rows(n, columns, 7);
  for (std::int64_t j = 0; j < n; ++j) {
    double largest = 0;
    for (std::int64_t c = 0; c < columns; ++c)
      largest = std::max(largest, std::abs(rows[to_size(j * columns + c)]));
    group.scale.push_back(static_cast<float>(largest / 127));
    for (std::int64_t c = 0; c < columns; ++c)
      group.basis.push_back(
          static_cast<std::int8_t>(std::lround(rows[to_size(j * columns + c)] / largest * 127)));
  }
  for (int c = 0; c < kTokenClasses; ++c)
    group.deviations.insert(group.deviations.end(), to_size(n),
                            static_cast<std::int16_t>((c - 4) * kPerOctave));
  group.class_weights.assign(to_size(n), 1.0F / static_cast<float>(n));
  for (int c = 1; c < kTokenClasses; ++c)
    group.class_edges.push_back(std::exp2(2.0F * static_cast<float>(c - 4) - 1));
  return group;
}

/// A model of 3 layers with 2 heads of 4 columns: keys in groups of 2 and 1 layers, values in one of 3. Keys
/// are rotated in the first layer, half of their columns in the second, none in the third.
inline KvCodec small_codec() {
  KvCodec codec;
  codec.config_sha256 = "config";
  codec.weights_digest = "weights";
  codec.layers = 3;
  codec.kv_heads = 2;
  codec.head_size = 4;
  codec.exact_first = 2;
  codec.lowest_deviation = -2 * kPerOctave;
  codec.curve = {{-64, 9, 1e-6}, {-16, 5.5, 1e-4}, {16, 3, 0.01}};
  codec.models = normal_models();
  codec.rotary = {{{0.5F, 0.125F}, 1.25}, {{0.25F}, 1}};
  codec.rotary_of_layer = {0, 1, -1};
  codec.streams[Stream::k] = {small_group(codec, 0, 2, 16), small_group(codec, 2, 1, 5)};
  codec.streams[Stream::v] = {small_group(codec, 0, 3, 20)};
  return codec;
}

}  // namespace headspan
