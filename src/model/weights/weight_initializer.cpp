#include "model/weights/weight_initializer.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "base/splitmix64.h"

namespace headspan {
namespace {

/// Returns the seed of one tensor: FNV-1a of its name, mixed with the seed of the model.
std::uint64_t tensor_seed(std::uint64_t seed, const std::string& name) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  return SplitMix64(seed ^ SplitMix64(hash).next()).next();
}

/// Returns a standard normal number from 64 random bits, by the Box-Muller transform.
float normal(std::uint64_t bits) {
  constexpr float kScale = 1.0f / 4294967296.0f;  // 2^-32
  const float radius = (static_cast<float>(bits >> 32) + 0.5f) * kScale;
  const float angle = static_cast<float>(bits & 0xffffffffu) * kScale;
  return std::sqrt(-2 * std::log(radius)) * std::cos(6.2831853f * angle);
}

/// Draws a slice: element i of the whole tensor takes the i-th output of SplitMix64, which can start anywhere
/// in its sequence.
void draw(const WeightSlice& slice, std::uint64_t seed, float deviation) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;  // of SplitMix64 from one output to the next
  const auto width = static_cast<std::uint64_t>(slice.shape[1]);
  constexpr std::int64_t kRows = 16;  // drawn in host memory, then copied to the slice
  at::parallel_for(0, (slice.rows.count + kRows - 1) / kRows, 1, [&](std::int64_t begin, std::int64_t end) {
    const c10::InferenceMode inference;  // the guard of the calling thread does not reach this one
    for (std::int64_t first = begin * kRows; first < std::min(end * kRows, slice.rows.count);
         first += kRows) {
      const at::Tensor rows = slice.values.narrow(0, first, std::min(kRows, slice.rows.count - first));
      const at::Tensor values = at::empty(rows.sizes(), at::kFloat);
      auto* out = values.data_ptr<float>();
      for (std::int64_t row = first; row < first + rows.size(0); ++row) {
        const auto number = static_cast<std::uint64_t>(slice.rows.first + row) * width +
                            static_cast<std::uint64_t>(slice.columns.first);
        SplitMix64 bits(seed + number * kStep);
        for (std::int64_t column = 0; column < slice.columns.count; ++column)
          *out++ = deviation * normal(bits.next());
      }
      rows.copy_(values);
    }
  });
}

}  // namespace

void initialize_weights(const ModelConfig& config, std::uint64_t seed, Weights& weights) {
  for (WeightSlice& slice : weights.slices) initialize_slice(config, seed, slice);
}

void initialize_slice(const ModelConfig& config, std::uint64_t seed, WeightSlice& slice) {
  if (slice.role == WeightSlice::Role::constant)
    slice.values.fill_(slice.initial);
  else
    draw(slice, tensor_seed(seed, slice.name), static_cast<float>(config.initializer_range));
  const std::int64_t row = config.pad.value_or(-1) - slice.rows.first;
  if (slice.role == WeightSlice::Role::embedding && config.pad.value_or(-1) >= 0 && row >= 0 &&
      row < slice.rows.count)
    slice.values[row].zero_();
}

}  // namespace headspan
