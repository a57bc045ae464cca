// How long the phases of a unit take, from what they cost (cost.h) and what a rank and the network do per
// second. A phase computes at the rate of its fullest rank, then receives its bytes and messages. The model
// overlaps nothing, so a real phase that does is faster. `headspan-bench scaling` measures the rates and
// compares the model with runs.
#pragma once

#include <map>
#include <string>

#include "app/plan/cost.h"

namespace headspan {

/// What one rank does per second.
struct Rates {
  std::map<std::string, double> gflops{///< by phase (cost.h); load has none: it reads
                                       {"forward", 60},   {"gram", 70},    {"pairs", 20},  {"heads", 20},
                                       {"selection", 20}, {"ceiling", 20}, {"overlap", 20}};
  double read_gb = 1;      ///< of checkpoints, a whole group together
  double network_gb = 10;  ///< received by a rank
  double latency_us = 5;   ///< of a message
};

/// Reads lines `key = value` with the keys PHASE_gflops, read_gb, network_gb and latency_us;
/// statistics_gflops sets all phases after gram. Missing keys keep their defaults. Throws InputError. Local.
Rates read_rates(const std::string& path);

struct PhaseSeconds {
  std::string phase;
  double compute = 0;   ///< for load: reading
  double transfer = 0;  ///< of bytes
  double latency = 0;   ///< of messages

  double total() const { return compute + transfer + latency; }
};

/// Returns the phases of `costs` in their order. `read`: bytes of the checkpoint; `ranks`: of a group.
std::vector<PhaseSeconds> predict(const std::vector<PhaseCost>& costs, double read, std::int64_t ranks,
                                  const Rates& rates);

}  // namespace headspan
