// Activations of a made-up stream and their way into a Gram, as a study goes it: through the collector, in
// rounds, each rank with its share of every round. What the benchmarks of the statistics work on.
#pragma once

#include "bench/bench.h"
#include "stats/regression/regression_data.h"

namespace headspan {

/// [tokens, columns], row-major, the same on every rank for one seed: heads share a few directions, each to
/// its own degree, in noise.
std::vector<float> random_rows(const BenchOptions& options, std::int64_t tokens, unsigned seed);

/// The Gram of `rows`, which every rank of the grid holds alike. Collective over the grid.
HeadGram stream_gram(const Grid& grid, const BenchOptions& options, const std::vector<float>& rows);

/// The stream's heads, layer by layer.
HeadLayout row_layout(const BenchOptions& options);

/// How fits to these activations are accepted and scored.
FitRules row_rules(const BenchOptions& options);

}  // namespace headspan
