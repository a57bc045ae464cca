// What the benchmarks of headspan share: options, timing, and the report of a figure beside its limit. Where
// a limit can be measured in the same process, the program's own routine and the limit run in turn, and the
// median of their ratios is judged; the machine's noise then falls on both. Figures without a limit here have
// a peer in peers.py, and run.sh puts the two side by side.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "dist/comm/mpi.h"
#include "stats/gram/gram.h"

namespace headspan {

struct ModelConfig;

/// What bounds a figure on a machine, as the benchmark `machine` measures it.
enum class Resource {
  none,  ///< nothing simple
  fp64,
  fp32,  ///< GF/s of fused products and sums
  read,
  copy,  ///< GB/s of memory
  disk   ///< GB/s of files that are not in the page cache
};

struct BenchOptions {
  std::string name;
  std::int64_t layers = 8;
  std::int64_t heads = 12;  ///< of a layer
  std::int64_t head_size = 32;
  std::int64_t tokens = 0;
  std::int64_t sequence_length = 256;  ///< of memory, forward and cache
  std::int64_t repeats = 5;            ///< counted runs; one more before them warms up
  std::string precision = "float64";   ///< of the Gram's products: float64, float32 or split
  std::string folder;                  ///< a checkpoint, or for memory one with config.json alone
  std::string plan;                    ///< of cache; empty: the full cache alone
  std::int64_t batch = 1;              ///< of cache: sequences that decode together
  std::string device = "cpu";          ///< of cache, device, forward, products and solves: cpu or cuda
  int threads = 1;                     ///< of a rank, as main has set them

  std::int64_t all_heads() const { return layers * heads; }
  std::int64_t columns() const { return all_heads() * head_size; }
  /// Of the products of a Gram.
  double gram_gflop() const {
    return 1e-9 * static_cast<double>(tokens) * static_cast<double>(columns()) *
           static_cast<double>(columns() + 1);
  }
  Precision product() const { return value_of(precision_words(), precision).value(); }
  /// Returns what bounds the products.
  Resource product_resource() const {
    if (product() == Precision::split) return Resource::none;
    return product() == Precision::float64 ? Resource::fp64 : Resource::fp32;
  }
};

/// Of a non-empty list.
double median(std::vector<double> values);

/// Seconds of `work`, from a barrier to a barrier. Collective over comm.
double seconds_of(const Comm& comm, const std::function<void()>& work);

/// The median of `repeats` runs after one that warms up. Collective over comm.
double median_seconds(const Comm& comm, std::int64_t repeats, const std::function<void()>& work);

/// Medians of a limit and a routine that run in turn: of the seconds of each, and of how many times as fast
/// as the limit the routine is (limit's seconds / routine's seconds, run by run).
struct TurnTimes {
  double limit;
  double routine;
  double speed;
};

/// As median_seconds, for two; `prepare` goes before each and is not timed. Collective over comm.
TurnTimes time_in_turn(
    const Comm& comm, std::int64_t repeats, const std::function<void()>& limit,
    const std::function<void()>& routine, const std::function<void()>& prepare = [] {});

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

/// How much of a resource a figure uses.
struct Use {
  Resource resource = Resource::none;
  double rate = 0;  ///< GF/s or GB/s
};

struct Figure {
  std::string name;  ///< what was measured, and against which limit
  std::string unit;  ///< of value and limit
  double value;
  double limit = kNone;     ///< kNone: none in this process
  double ratio = kNone;     ///< how good the value is against the limit: more is better
  double required = kNone;  ///< the least ratio; kNone: nothing is required
  Use use = {};             ///< the value as a use of the machine
};

/// Prints a line for people and one for programs on rank 0. False on all ranks when the ratio is below what
/// is required. Collective over comm.
bool report(const BenchOptions& options, const Comm& comm, const Figure& figure);

/// Where a benchmark with --device runs: each rank's GPU in turn, or the CPU. Sees to exact products there.
/// Throws AgreedError where --device is cuda and a rank sees no GPU. Collective over comm.
at::Device bench_place(const BenchOptions& options, const Comm& comm);

/// Whether a folder holds weights, not config.json alone.
bool has_weights(const std::string& folder);

/// The options with the layers and heads of a model in place of their own.
BenchOptions with_shape_of(const ModelConfig& config, BenchOptions options);

/// The benchmarks. Each returns whether everything required was met. Collective over comm.
bool bench_gram(const BenchOptions& options, const Comm& comm);
bool bench_statistics(const BenchOptions& options, const Comm& comm);  ///< also pairwise, topn and selection
bool bench_study(const BenchOptions& options, const Comm& comm);
bool bench_load(const BenchOptions& options, const Comm& comm);
bool bench_machine(const BenchOptions& options, const Comm& comm);
bool bench_forward(const BenchOptions& options, const Comm& comm);
bool bench_archive(const BenchOptions& options, const Comm& comm);
bool bench_cache(const BenchOptions& options, const Comm& comm);
bool bench_memory(const BenchOptions& options, const Comm& comm);
bool bench_scaling(const BenchOptions& options, const Comm& comm);
bool bench_device(const BenchOptions& options, const Comm& comm);
bool bench_solves(const BenchOptions& options, const Comm& comm);
bool bench_products(const BenchOptions& options, const Comm& comm);
bool bench_overlap(const BenchOptions& options, const Comm& comm);  ///< also eigenvalues and singular

}  // namespace headspan
