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

bool is_thorough(Effort effort, const ModelConfig& config) {
  return effort == Effort::full ||
         (effort == Effort::automatic && operations_of_measuring(config) <= kMostOperations);
}

std::int64_t default_own_text(std::int64_t most_text) { return std::min(kOwnText, most_text); }

CalibrationEffort choose_effort(const Job::Compress& rule, const ModelConfig& config, bool from_grams,
                                std::int64_t most_text) {
  const bool weighs =
      rule.algorithm == CompressionAlgorithm::latent || rule.algorithm == CompressionAlgorithm::headspan;
  const bool measures = weighs && !from_grams && config.kv_heads * config.head_size <= kMaxEigenvectors &&
                        is_thorough(rule.effort, config);
  CalibrationEffort effort;
  effort.units = rule.units.value_or(measures ? LossUnits::measured : LossUnits::residual);
  const bool generates = measures && rule.algorithm == CompressionAlgorithm::latent;
  effort.own_text = rule.own_text.value_or(generates ? default_own_text(most_text) : 0);
  effort.chosen =
      weighs && !from_grams && rule.effort == Effort::automatic && (!rule.units || !rule.own_text);
  return effort;
}

CalibrationEffort choose_effort(const Job::Archive& rule, const ModelConfig& config, std::int64_t most_text) {
  const bool weighs = rule.algorithm == ArchiveAlgorithm::headspan,
             thorough = weighs && is_thorough(rule.effort, config);
  return {thorough ? LossUnits::measured : LossUnits::residual,
          rule.own_text.value_or(thorough ? default_own_text(most_text) : 0),
          weighs && rule.effort == Effort::automatic};
}

void tell(const std::string& key, const std::string& measuring, const CalibrationEffort& effort,
          const Log& log) {
  if (!effort.chosen) return;
  std::string work;
  if (effort.units == LossUnits::measured) work = measuring;
  if (effort.own_text > 0)
    work += (work.empty() ? "" : ", and ") + ("the model generates " + std::to_string(effort.own_text)) +
            " tokens to calibrate on too";
  if (!work.empty())
    log.notice(key + " = auto: " + work + "; not with " + key + " = quick");
  else
    log.notice(key + " = auto: the model is run once, because of its size; with " + key + " = full " +
               measuring);
}

}  // namespace headspan
