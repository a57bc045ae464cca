// scaling: whole studies of K, Q and V, from a model with random weights to ceilings and overlap, on 1, 2, ..
// of the ranks that were launched, beside what the model of performance.h expects of them. Strong: the same
// tokens on any number of ranks; weak: as many for each rank. The rates of the model are those of the run on
// one rank, bytes and messages per second are measured on the ranks that run. Ranks beyond the cores share
// them.
#include <cstdio>
#include <set>

#include <unistd.h>

#include "app/capture/capture.h"
#include "app/plan/performance.h"
#include "app/sources/overlap.h"
#include "app/study/analysis.h"
#include "bench/made_up_sample.h"
#include "dist/threads.h"
#include "model/types/read_config.h"

namespace headspan {
namespace {

using Seconds = std::map<std::string, double>;  // by phase

/// 1, 2, 3 and 4, then every power of two, and all.
std::vector<int> rank_counts(int ranks) {
  std::vector<int> counts;
  for (int r = 1; r < ranks; r = r < 4 ? r + 1 : 2 * r) counts.push_back(r);
  counts.push_back(ranks);
  return counts;
}

/// The cores of this rank's node that any rank of `comm` may use. Collective over comm.
int cores_of_node(const Comm& comm) {
  const Comm node = comm.split_shared();
  std::set<int> all;
  for (const auto& cores :
       node.exchange(std::vector<std::vector<int>>(static_cast<std::size_t>(node.size()), allowed_cores())))
    all.insert(cores.begin(), cores.end());
  return static_cast<int>(all.size());
}

/// Waits without using a core. Collective over comm.
void sleep_until_all_are_here(const Comm& comm) {
  MPI_Request request = MPI_REQUEST_NULL;
  HS_MPI(MPI_Ibarrier(comm.get(), &request));
  for (int done = 0; done == 0; usleep(2000)) HS_MPI(MPI_Test(&request, &done, MPI_STATUS_IGNORE));
}

/// Bytes and messages that a rank takes from all others. Collective over comm.
void measure_network(const Comm& comm, Rates& rates) {
  if (comm.size() == 1) return;
  constexpr std::size_t kLarge = 4 << 20;
  const auto seconds = [&](std::size_t bytes) {
    const std::vector<std::vector<char>> send(static_cast<std::size_t>(comm.size()),
                                              std::vector<char>(bytes));
    return median_seconds(comm, 9, [&] { comm.exchange(send); });
  };
  const double others = comm.size() - 1, latency = seconds(1) / (2 * others);
  rates.latency_us = 1e6 * latency;
  rates.network_gb = 1e-9 * others * static_cast<double>(kLarge) / (seconds(kLarge) - 2 * others * latency);
  comm.broadcast(&rates.latency_us, 1, 0);
  comm.broadcast(&rates.network_gb, 1, 0);
}

constexpr std::int64_t kWarmUpTokens = 512;

struct Phase {
  std::string name;
  double measured, expected;  ///< seconds
};

/// What came of the studies on one number of ranks.
struct Run {
  int ranks;
  std::int64_t tokens;
  double network_gb, latency_us;
  std::vector<Phase> phases;  ///< "all" comes last
};

/// The studies of one benchmark.
class Scaling {
 public:
  Scaling(const BenchOptions& options, const Comm& comm)
      : options_(options), comm_(comm), config_(read_model_config(options.folder + "/config.json")) {
    job_.model.init = {WeightSource::random};
    job_.predict.precision = options.product();
  }

  void run() {
    const int cores = cores_of_node(comm_);
    for (const char* kind : {"strong", "weak"}) {
      std::vector<Run> runs;
      for (const int ranks : rank_counts(comm_.size())) {
        const bool weak = kind == std::string("weak");
        const Comm part = comm_.split(comm_.rank() < ranks ? 0 : 1, comm_.rank());
        if (comm_.rank() < ranks) runs.push_back(compare(part, options_.tokens * (weak ? ranks : 1), cores));
        sleep_until_all_are_here(comm_);
      }
      if (comm_.is_root()) print(kind, runs);
    }
    if (comm_.is_root()) print_rates();
  }

 private:
  /// Medians of this rank's seconds over the repeats.
  Seconds measure(const Comm& part, const Sample& sample) const {
    std::map<std::string, std::vector<double>> runs;
    for (std::int64_t run = 0; run < options_.repeats; ++run) {
      Profile profile;
      study(part, sample, profile);
      for (const auto& [phase, seconds] : profile.seconds()) runs[phase].push_back(seconds);
    }
    Seconds seconds;
    for (const auto& [phase, values] : runs) seconds[phase] = median(values);
    return seconds;
  }

  void study(const Comm& part, const Sample& sample, Profile& profile) const {
    const ProcessLayout processes(part, 1, 1, {});
    const Log silent(false);
    Progress progress(silent, "forward", "tokens", sample.total());
    CaptureRequest request{{Stream::k, Stream::q, Stream::v}};
    request.precision = options_.product();
    request.batch_tokens = batch_tokens(job_.run, sample, processes);
    std::vector<StreamGrams> grams;
    {
      const Transformer model = Transformer::random(config_, 0, {Dtype::float32, {config_.layers, false}},
                                                    processes.tensor_device());
      part.barrier();
      grams = capture_grams<float>(model, sample, request, processes, progress, profile);
    }
    {
      const Profile::Phase phase = profile.enter("overlap");
      compute_overlap(job_.overlap, Projections(config_, 0, Dtype::float32), part, silent, "");
    }
    for (std::size_t s = 0; s < grams.size(); ++s) {
      const Profile::Phase phase = profile.enter("pairs");
      analyse(regression_data(stream_layout(config_, request.streams[s]), FitRules{}, std::move(grams[s].fit),
                              std::move(grams[s].heldout)),
              {}, {}, profile);
    }
  }

  /// What the phases cost on this many ranks.
  std::vector<PhaseCost> costs(const Comm& part, const Sample& sample) const {
    TokenCounts tokens{0, 0, options_.sequence_length};
    for (std::size_t s = 0; s < sample.sequences.size(); ++s)
      (sample.heldout[s] ? tokens.heldout : tokens.fit) += sample.sequences[s].length;
    return phase_costs(job_, config_, Dtype::float32, tokens, {part.size(), 1, squarest_grid(part.size())});
  }

  /// Measured and expected. Collective over part.
  Run compare(const Comm& part, std::int64_t tokens, int cores) {
    const Sample sample = made_up_sample(options_, tokens, config_.vocab_size);
    measure_network(part, rates_);
    Profile unused;
    study(part, made_up_sample(options_, std::min(tokens, kWarmUpTokens), config_.vocab_size), unused);
    const Seconds measured = measure(part, sample);
    const std::vector<PhaseCost> costs = this->costs(part, sample);
    if (part.size() == 1 && !calibrated_)
      for (const PhaseCost& cost : costs)
        if (cost.phase != "load") rates_.gflops[cost.phase] = 1e-9 * cost.flops / measured.at(cost.phase);
    calibrated_ = true;
    Rates shared = rates_;
    const int neighbours = part.split_shared().size() * options_.threads;
    for (auto& [phase, gflops] : shared.gflops) gflops *= std::min(1.0, 1.0 * cores / neighbours);
    Run run{part.size(), tokens, rates_.network_gb, rates_.latency_us, {}};
    double all = 0, expected = 0;
    for (const PhaseSeconds& phase : predict(costs, 0, part.size(), shared)) {
      if (phase.phase == "load") continue;
      run.phases.push_back({phase.phase, measured.at(phase.phase), phase.total()});
      all += measured.at(phase.phase);
      expected += phase.total();
    }
    run.phases.push_back({"all", all, expected});
    return run;
  }

  void print(const std::string& kind, const std::vector<Run>& runs) const {
    std::printf("\n%s scaling: seconds (seconds that the model expects)\n\n| ranks | tokens |", kind.c_str());
    for (const Phase& phase : runs[0].phases) std::printf(" %s |", phase.name.c_str());
    std::printf(" efficiency | GB/s to a rank | us a message |\n|");
    for (std::size_t column = 0; column < runs[0].phases.size() + 5; ++column) std::printf(" --- |");
    for (const Run& run : runs) {
      std::printf("\n| %d | %lld |", run.ranks, static_cast<long long>(run.tokens));
      for (const Phase& phase : run.phases) std::printf(" %.3g (%.3g) |", phase.measured, phase.expected);
      const double alone = runs[0].phases.back().measured;
      const double ideal = kind == "weak" ? alone : alone / run.ranks;
      std::printf(" %.2f |", ideal / run.phases.back().measured);
      if (run.ranks > 1)
        std::printf(" %.3g | %.3g |", run.network_gb, run.latency_us);
      else
        std::printf(" - | - |");
    }
    std::printf("\n");
  }

  /// For `headspan plan --rates`.
  void print_rates() const {
    std::printf("\nrates of a rank, for `headspan plan --rates`\n\n");
    for (const auto& [phase, gflops] : rates_.gflops)
      std::printf("%s_gflops = %.4g\n", phase.c_str(), gflops);
    std::printf("network_gb = %.4g\nlatency_us = %.4g\n", rates_.network_gb, rates_.latency_us);
  }

  const BenchOptions& options_;
  const Comm& comm_;
  ModelConfig config_;
  Job job_;
  Rates rates_;
  bool calibrated_ = false;
};

}  // namespace

bool bench_scaling(const BenchOptions& given, const Comm& comm) {
  const BenchOptions options = with_shape_of(read_model_config(given.folder + "/config.json"), given);
  Scaling(options, comm).run();
  return true;
}

}  // namespace headspan
