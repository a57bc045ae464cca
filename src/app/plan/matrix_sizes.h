// Checks before work begins that the matrices of a study can be indexed: the columns of its streams by the
// 32-bit integers of MPI and BLAS, and the matrices that ScaLAPACK works on by its own
// (dist/matrix/linear_algebra.h). Not whether they fit the memory (memory_check.h).
#pragma once

#include "app/job/job.h"
#include "model/core/model_config.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// The layers of a stream.
struct LayerSizes {
  std::int64_t widest;  ///< columns of the widest layer
  std::int64_t heads;   ///< of all layers
  std::int64_t head_size;
};
LayerSizes layer_sizes(const HeadLayout& layout);

/// Checks the Gram of a stream, and the layer ceiling on a group's grid. Throws InputError, which says what
/// would work. Local.
void check_layer_sizes(const Job::Ceiling& ceiling, const Job::Run& run, const LayerSizes& layers,
                       const GridShape& grid);

/// Checks what a study makes of a model: the streams, and the projections whose overlap it computes. Throws
/// InputError, which says what would work. Local.
void check_model_sizes(const Job& job, const ModelConfig& config, const GridShape& grid,
                       const ModelConfig* reference = nullptr);

constexpr std::int64_t kLargeProjection = std::int64_t{5120} * 5120;  ///< elements

/// Returns how many subgroups `ranks` form for the overlap, when `matrices` (one projection of one layer
/// each) are distributed over them: at most one per matrix, and a single one if a matrix has at least `large`
/// elements; all ranks then work on it together. `elements`: of one matrix.
std::int64_t overlap_subgroups(std::int64_t elements, std::int64_t matrices, std::int64_t ranks,
                               std::int64_t large = kLargeProjection);

}  // namespace headspan
