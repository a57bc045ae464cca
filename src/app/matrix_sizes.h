// Whether ScaLAPACK can count the matrices that a study gives to it whole (dist/linear_algebra.h), before
// work begins. Not whether they fit the memory (cost.h).
#pragma once

#include "app/job.h"
#include "model/model_config.h"
#include "stats/regression_data.h"

namespace headspan {

/// Of the layers of a stream, for the layer ceiling over a group's grid. Throws InputError with a number of
/// ranks that would do. Local.
void check_layer_sizes(const Job& job, const HeadLayout& layout, const GridShape& grid);

/// Of a model's projections, for the overlap on a group of `ranks`. Likewise.
void check_projection_sizes(const Job& job, const ModelConfig& config, std::int64_t ranks);

}  // namespace headspan
