#include "app/compress/calibration_effort.h"

#include <algorithm>

#include "dist/matrix/linear_algebra.h"
#include "model/weights/weights.h"

namespace headspan {
namespace {

constexpr double kMostOperations = 2e14;
constexpr std::int64_t kOwnText = 12288;

/// Returns the operations of the forwards over 512 tokens that measure each layer of both streams.
double operations_of_measuring(const ModelConfig& config) {
  constexpr double kTokens = 512, kPerWeight = 2, kStreams = 2;
  const double weights = weight_bytes(config, {config.layers, true}, 1, Dtype::float32) / 4;
  return static_cast<double>(config.layers) * kStreams * kTokens * kPerWeight * weights;
}

}  // namespace

CalibrationEffort choose_effort(const Job::Compress& rule, const ModelConfig& config, bool from_grams,
                                std::int64_t most_text) {
  const bool weighs =
      rule.algorithm == CompressionAlgorithm::latent || rule.algorithm == CompressionAlgorithm::headspan;
  const bool measures = weighs && !from_grams && config.kv_heads * config.head_size <= kMaxEigenvectors &&
                        (rule.effort == Effort::full || (rule.effort == Effort::automatic &&
                                                         operations_of_measuring(config) <= kMostOperations));
  CalibrationEffort effort;
  effort.units = rule.units.value_or(measures ? LossUnits::measured : LossUnits::residual);
  const bool generates = measures && rule.algorithm == CompressionAlgorithm::latent;
  effort.own_text = rule.own_text.value_or(generates ? std::min(kOwnText, most_text) : 0);
  effort.chosen =
      weighs && !from_grams && rule.effort == Effort::automatic && (!rule.units || !rule.own_text);
  return effort;
}

}  // namespace headspan
