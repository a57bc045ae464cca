// What the benchmarks of headspan share: options, paired timing, and the report of a figure beside its limit.
// A benchmark measures the program's own routine and its limit in turn, in one process, and judges the median
// of their ratios; the machine's noise then falls on both.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "dist/mpi.h"

namespace headspan {

struct BenchOptions {
  std::string name;  ///< gram, pairwise, topn, forward, load, model
  std::int64_t layers = 8;
  std::int64_t heads = 12;  ///< of a layer
  std::int64_t head_size = 32;
  std::int64_t tokens = 10000;
  std::int64_t repeats = 5;
  std::string precision = "float64";
  std::string folder;  ///< a checkpoint, for load and model
  std::int64_t sequence_length = 256;

  std::int64_t all_heads() const { return layers * heads; }
  std::int64_t columns() const { return all_heads() * head_size; }
};

/// Seconds of `work`, from a barrier to a barrier. Collective over comm.
double seconds_of(const Comm& comm, const std::function<void()>& work);

/// Medians over the repeats after one warm-up: of each alone, and of first / second pair by pair.
struct PairedTimes {
  double first, second, ratio;
};
PairedTimes time_in_turn(const Comm& comm, std::int64_t repeats, const std::function<void()>& first,
                         const std::function<void()>& second);

/// One figure beside its limit. `ratio` is figure / limit; `required` its least value, 0 where nothing is
/// required.
struct Figure {
  std::string name;  ///< what was measured and what the limit is
  std::string unit;  ///< of figure and limit: GF/s, GB/s, tokens/s, s
  double figure, limit, ratio, required;
};

/// Prints a human line and a machine line on rank 0; false when the ratio is below what is required.
bool report(const BenchOptions& options, const Comm& comm, const Figure& figure);

/// Each returns whether all its requirements were met. Collective over comm.
bool bench_gram(const BenchOptions& options, const Comm& comm);
bool bench_statistics(const BenchOptions& options, const Comm& comm);  ///< pairwise, topn, forward
bool bench_load(const BenchOptions& options, const Comm& comm);
bool bench_model(const BenchOptions& options, const Comm& comm);

}  // namespace headspan
