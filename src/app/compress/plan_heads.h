// The plan of a compression that keeps whole heads and predicts the others from them.
#pragma once

#include "app/compress/calibration.h"

namespace headspan {

/// Whole heads kept, and maps for the others.
struct HeadPlan {
  PlannedStreams streams;
  std::int64_t references = 0;  ///< of the target that has most
};

/// By headspan's elimination or the paper's graphs; uses up the Grams. With `measure` the losses of each
/// layer and stream are put in the unit of what half of its latents are measured to lose. Throws AgreedError
/// where the budget is out of reach. Collective over the grid of the Grams.
HeadPlan plan_heads(const Job::Compress& rule, Calibration& calibration, const MeasuredKl& measure);

}  // namespace headspan
