// Models of levels from the shape of a distribution: how often coefficients are how many of their deviations
// away from 0. One shape serves all columns of a codec; columns differ by their deviation, in steps.
#pragma once

#include <cstdint>
#include <vector>

#include "io/archive/level_coder.h"

namespace headspan {

constexpr int kShapeBins = 1024;       ///< of a histogram, and one for everything beyond
constexpr int kBinsPerDeviation = 64;  ///< so that the histogram ends at 16 deviations
/// Of the first model, in sixteenths of an octave of the step. Smaller ones would cost more bits than the
/// error that they take away is worth.
constexpr int kLowestDeviation = -28;
constexpr int kLevelModels = 12 * 16 - kLowestDeviation;  ///< up to a deviation of 4096 steps

/// Returns kLevelModels models for deviations of 2^(kLowestDeviation / 16) steps on, a sixteenth of an octave
/// apart. shape: [kShapeBins + 1], how many coefficients there were, by size in deviations; symmetric signs
/// are assumed, and that numbers in a bin are spread evenly. At least one. Local.
std::vector<LevelModel> make_level_models(const std::vector<double>& shape);

}  // namespace headspan
