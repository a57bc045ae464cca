// Rate control: which step a codec takes for so many bits a number, or for so much loss, by the curve that
// its calibration measured. Between two points of the curve bits are linear in the step, which is a
// logarithm, and so is the logarithm of the loss.
#pragma once

#include <vector>

#include "io/archive/kv_codec.h"

namespace headspan {

/// Returns the smallest step that takes at most so many bits a number. Throws InputError blaming archive.bits
/// if the curve does not reach so far. Local.
int step_for_bits(const std::vector<RatePoint>& curve, double bits);

/// Returns the largest step that loses at most `kl`. Throws InputError blaming archive.kl. Local.
int step_for_kl(const std::vector<RatePoint>& curve, double kl);

/// Returns the bits a number that the curve expects of a step within it. Local.
double bits_at(const std::vector<RatePoint>& curve, int step);

}  // namespace headspan
