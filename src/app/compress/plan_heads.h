// Plans a compression that keeps whole heads and predicts the others from them.
#pragma once

#include "app/compress/calibration.h"

namespace headspan {

/// The kept heads, and the maps of the others.
struct HeadPlan {
  PlannedStreams streams;
  std::int64_t references = 0;  ///< maximum of any target
};

/// Chooses the kept heads and references by headspan's elimination or by the paper's graphs, and fits the
/// maps. Consumes the Grams. With `measure` the expected losses of each layer and stream are multiplied by
/// loss_scale (plan_latents.h). Throws AgreedError if the budget cannot be met. Collective over the grid of
/// the Grams.
HeadPlan plan_heads(const Job::Compress& rule, Calibration& calibration, const MeasuredKl& measure);

}  // namespace headspan
