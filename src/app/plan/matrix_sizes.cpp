#include "app/plan/matrix_sizes.h"

#include <algorithm>
#include <limits>

#include "base/checked.h"
#include "dist/matrix/linear_algebra.h"
#include "stats/gram/gram.h"
#include "stats/layers/layer_ceiling.h"
#include "stats/layers/layer_targets.h"

namespace headspan {
namespace {

/// A matrix that is distributed in blocks of whole heads.
struct HeadMatrix {
  std::int64_t rows, columns, heads, head_size;

  /// Returns the largest number of elements that a rank of the grid holds.
  std::int64_t local_elements(const GridShape& grid) const {
    return max_local_elements(grid, rows, columns, gram_block(grid, heads, head_size));
  }
};

/// Returns the smallest grid, square or one column wider, that holds the matrix.
GridShape enough_ranks(const HeadMatrix& matrix) {
  GridShape grid{1, 1};
  while (matrix.local_elements(grid) > kMaxLocalElements) grid = {grid.columns, grid.rows + 1};
  return grid;
}

void check(const std::string& what, const HeadMatrix& matrix, const GridShape& grid,
           const std::string& instead) {
  const std::int64_t elements = matrix.local_elements(grid);
  if (elements <= kMaxLocalElements) return;
  const GridShape enough = enough_ranks(matrix);
  throw InputError("", "run.grid", to_string(grid),
                   "leaves " + std::to_string(elements) + " elements of " + what + " on a rank, above the " +
                       std::to_string(kMaxLocalElements) + " that ScaLAPACK can count",
                   "run on " + std::to_string(enough.rows * enough.columns) + " ranks of a group (" +
                       to_string(enough) + "), or set " + instead);
}

/// Checks the projections whose overlap a group of `ranks` computes.
void check_projection_sizes(const Job::Overlap& overlap, const ModelConfig& config, std::int64_t ranks) {
  if (!overlap.enabled) return;
  std::int64_t heads = 0;
  for (const Stream stream : overlap.projections) heads = std::max(heads, config.heads_of(stream));
  const std::int64_t d = config.head_size, columns = heads * d, rows = std::max(config.hidden_size, columns);
  const auto matrices = static_cast<std::int64_t>(overlap.projections.size()) * config.layers;
  const std::int64_t subgroups = overlap_subgroups(columns * config.hidden_size, matrices, ranks);
  check("a projection of " + std::to_string(rows) + " x " + std::to_string(columns),
        {rows, columns, heads, d}, squarest_grid(ranks / subgroups), "overlap.enabled = false");
}

/// Checks that the columns of `what` can be counted. `key` names it.
void check_columns(const char* key, const std::string& what, std::int64_t heads, std::int64_t head_size) {
  const std::int64_t columns = checked_mul(heads, head_size, "columns of a stream");
  if (columns > std::numeric_limits<int>::max())
    throw InputError("", key, "", "holds " + what + " of " + std::to_string(columns) + " columns",
                     "MPI and BLAS count up to " + std::to_string(std::numeric_limits<int>::max()));
}

}  // namespace

LayerSizes layer_sizes(const HeadLayout& layout) {
  std::int64_t widest = 0;
  for (const LayerTargets& layer : whole_layers(layout))
    widest = std::max(widest, (layer.last - layer.first) * layout.head_size);
  return {widest, layout.heads(), layout.head_size};
}

void check_layer_sizes(const Job::Ceiling& ceiling, const Job::Run& run, const LayerSizes& layers,
                       const GridShape& grid) {
  check_columns("predict.streams", "a stream", layers.heads, layers.head_size);
  const bool in_layers = ceiling.enabled && ceiling.scope != CeilingScope::causal;
  if (!in_layers || run.device == ComputeDevice::cuda || layers.widest < kWideLayer) return;
  check("the " + std::to_string(layers.widest) + " columns of a layer",
        {layers.widest, layers.widest, layers.heads, layers.head_size}, grid, "ceiling.scope = causal");
}

void check_model_sizes(const Job& job, const ModelConfig& config, const GridShape& grid,
                       const ModelConfig* reference) {
  for (const Stream stream : job.predict.streams) {
    const std::int64_t heads = config.heads_of(stream);
    check_layer_sizes(job.ceiling, job.run,
                      {heads * config.head_size, heads * config.layers, config.head_size}, grid);
  }
  for (const StreamPair& pair : job.predict.cross)
    check_columns("cross.streams", "a pair",
                  (config.heads_of(pair.source) + config.heads_of(pair.target)) * config.layers,
                  config.head_size);
  if (reference != nullptr)
    for (const Stream stream : job.predict.streams)
      check_columns("cross.model", "a stream of two models",
                    config.heads_of(stream) * config.layers + reference->heads_of(stream) * reference->layers,
                    std::max(config.head_size, reference->head_size));
  check_projection_sizes(job.overlap, config, grid.rows * grid.columns);
}

std::int64_t overlap_subgroups(std::int64_t elements, std::int64_t matrices, std::int64_t ranks,
                               std::int64_t large) {
  return elements >= large ? 1 : std::min(ranks, matrices);
}

}  // namespace headspan
