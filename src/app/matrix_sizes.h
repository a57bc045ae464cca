// Whether the 32-bit integers of MPI and BLAS can count the columns of a study's streams, and ScaLAPACK the
// matrices that it is given whole (dist/linear_algebra.h), before work begins. Not whether they fit the
// memory (cost.h).
#pragma once

#include "app/job.h"
#include "model/model_config.h"
#include "stats/regression_data.h"

namespace headspan {

/// The layers of a stream.
struct LayerSizes {
  std::int64_t widest;  ///< columns of the layer with most
  std::int64_t heads;   ///< of all layers
  std::int64_t head_size;
};
LayerSizes layer_sizes(const HeadLayout& layout);

/// For the Gram, and for the layer ceiling over a group's grid. Throws InputError with what would do. Local.
void check_layer_sizes(const Job& job, const LayerSizes& layers, const GridShape& grid);

/// Of all that a study makes of a model: the layers of its streams and, for the overlap, its projections.
/// Likewise.
void check_model_sizes(const Job& job, const ModelConfig& config, const GridShape& grid);

}  // namespace headspan
