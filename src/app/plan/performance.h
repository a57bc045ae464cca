// How long a unit takes: a model of its phases from what they cost (cost.h) and what a rank and the network
// do in a second. A phase takes the operations of its fullest rank at the rank's rate, then the bytes and the
// messages that it receives; nothing overlaps, so that what does overlap makes a phase shorter than this.
// `headspan-bench scaling` measures the rates and holds the model against runs.
#pragma once

#include <map>
#include <string>

#include "app/plan/cost.h"

namespace headspan {

/// What one rank does in a second.
struct Rates {
  std::map<std::string, double> gflops{///< by phase (cost.h); load has none
                                       {"forward", 60},   {"gram", 70},    {"pairs", 20},  {"heads", 20},
                                       {"selection", 20}, {"ceiling", 20}, {"overlap", 20}};
  double read_gb = 1;      ///< of checkpoints, a whole group together
  double network_gb = 10;  ///< received by a rank
  double latency_us = 5;   ///< until a message is there
};

/// Reads `key = value` lines: PHASE_gflops, read_gb, network_gb, latency_us; statistics_gflops stands for all
/// phases behind gram. What is not there keeps its default. Throws InputError. Local.
Rates read_rates(const std::string& path);

struct PhaseSeconds {
  std::string phase;
  double compute = 0;   ///< for load: reading
  double transfer = 0;  ///< of bytes
  double latency = 0;   ///< of messages

  double total() const { return compute + transfer + latency; }
};

/// The phases of `costs` in their order. `read`: bytes of the checkpoint, `ranks`: of a group.
std::vector<PhaseSeconds> predict(const std::vector<PhaseCost>& costs, double read, std::int64_t ranks,
                                  const Rates& rates);

}  // namespace headspan
