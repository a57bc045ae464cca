#include "app/archive/codec_rotary.h"

#include <algorithm>
#include <cmath>

#include "base/checked.h"
#include "base/error.h"
#include "model/forward/rope.h"
#include "stats/compression/rotated_metric.h"

namespace headspan {
namespace {

constexpr std::int64_t kDistances = 512;  // that a mean over all is taken from, at most

/// Returns distances below `length`, spread evenly, without a period: multiples of the golden section.
std::vector<std::int64_t> sampled_distances(std::int64_t length) {
  const double golden = (std::sqrt(5.0) - 1) / 2;
  std::vector<std::int64_t> distances;
  for (std::int64_t i = 0; i < std::min(length, kDistances); ++i) {
    const double share = std::fmod(static_cast<double>(i) * golden, 1.0);
    distances.push_back(
        length <= kDistances ? i : static_cast<std::int64_t>(share * static_cast<double>(length)));
  }
  return distances;
}

/// Returns the angles by which a query sees a key rotated that is so far behind it.
RotationAngles angles_of(const RotaryRule& rule, const std::vector<std::int64_t>& distances) {
  RotationAngles rotation;
  rotation.pairs = static_cast<std::int64_t>(rule.frequencies.size());
  for (const std::int64_t distance : distances)
    for (const float frequency : rule.frequencies)
      rotation.angles.push_back(-static_cast<double>(distance) * static_cast<double>(frequency));
  return rotation;
}

/// Multiplies rows and columns of rotated coordinates by what queries and keys are both multiplied by.
void scale_rotated(double scale, std::int64_t rotated, std::int64_t d, std::vector<double>& metrics) {
  for (std::size_t k = 0; k < metrics.size(); ++k) {
    const auto column = static_cast<std::int64_t>(k) % d, row = static_cast<std::int64_t>(k) / d % d;
    metrics[k] *= (row < rotated ? scale : 1) * (column < rotated ? scale : 1);
  }
}

}  // namespace

void set_rotary(const ModelConfig& config, const std::string& config_path, KvCodec& codec) {
  const auto add = [&](const RopeRule& rule) {
    if (std::holds_alternative<LongRopeScaling>(rule.scaling))
      throw InputError(config_path, "rope_scaling", "longrope", "rotates keys by the length of the sequence",
                       "a codec cannot take that away");
    codec.rotary.push_back({rotary_frequencies(rule, config.rotated_size()), rule.length});
  };
  add(config.rope);
  if (config.window_rope) add(*config.window_rope);
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    codec.rotary_of_layer.push_back(!config.rotates_in(layer) ? -1 : config.has_window_rope(layer) ? 1 : 0);
}

std::vector<double> key_metric_before_rotary(const KvCodec& codec, const std::vector<double>& metric,
                                             std::int64_t length) {
  const std::int64_t d = codec.head_size, of_layer = codec.kv_heads * d * d;
  const std::vector<std::int64_t> distances = sampled_distances(length);
  std::vector<RotationAngles> rotations;
  for (const RotaryRule& rule : codec.rotary) rotations.push_back(angles_of(rule, distances));
  std::vector<double> averaged;
  for (std::int64_t layer = 0; layer < codec.layers; ++layer) {
    const auto first = metric.begin() + layer * of_layer;
    std::vector<double> of_heads(first, first + of_layer);
    if (const std::int64_t rule = codec.rotary_of_layer[to_size(layer)]; rule >= 0) {
      const RotaryRule& rotary = codec.rotary[to_size(rule)];
      of_heads = rotated_metric(of_heads, d, rotations[to_size(rule)]);
      scale_rotated(rotary.length * rotary.length, 2 * rotations[to_size(rule)].pairs, d, of_heads);
    }
    averaged.insert(averaged.end(), of_heads.begin(), of_heads.end());
  }
  return averaged;
}

}  // namespace headspan
