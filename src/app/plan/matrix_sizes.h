// Whether the 32-bit integers of MPI and BLAS can count the columns of a study's streams, and ScaLAPACK the
// matrices that it is given whole (dist/matrix/linear_algebra.h), before work begins. Not whether they fit
// the memory (cost.h).
#pragma once

#include "app/job/job.h"
#include "model/core/model_config.h"
#include "stats/regression/regression_data.h"

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

constexpr std::int64_t kLargeProjection = std::int64_t{5120} * 5120;  ///< elements

/// How many teams `ranks` form, to which `pieces` projections of layers are dealt out: as many as there is
/// work for, but one where a projection has `large` elements and more, which all ranks work on together.
std::int64_t overlap_teams(std::int64_t elements, std::int64_t pieces, std::int64_t ranks,
                           std::int64_t large = kLargeProjection);

}  // namespace headspan
