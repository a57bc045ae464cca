#include "app/plan/performance.h"

#include <cmath>
#include <sstream>

#include "app/job/value_kind.h"
#include "base/error.h"
#include "base/input_file.h"
#include "base/printable.h"

namespace headspan {
namespace {

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

/// Returns the rates that each key of a rates file sets.
std::map<std::string, std::vector<double*>> known_rates(Rates& rates) {
  std::map<std::string, std::vector<double*>> known{{"read_gb", {&rates.read_gb}},
                                                    {"network_gb", {&rates.network_gb}},
                                                    {"latency_us", {&rates.latency_us}}};
  for (auto& [phase, gflops] : rates.gflops) {
    known[phase + "_gflops"] = {&gflops};
    if (phase != "forward" && phase != "gram") known["statistics_gflops"].push_back(&gflops);
  }
  return known;
}

}  // namespace

Rates read_rates(const std::string& path) {
  Rates rates;
  const auto known = known_rates(rates);
  std::istringstream file(read_small_file(path));
  for (std::string text; std::getline(file, text);) {
    text = text.substr(0, text.find('#'));
    const std::size_t equals = text.find('=');
    const std::string key = trimmed(text.substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : trimmed(text.substr(equals + 1));
    if (key.empty() && value.empty()) continue;
    const auto found = known.find(key);
    if (found == known.end()) {
      std::string names;
      for (const auto& [name, targets] : known) names += (names.empty() ? "" : ", ") + name;
      throw InputError(path, printable(key), printable(value), "is not a rate", names + " = a number");
    }
    try {
      for (double* const rate : found->second) *rate = positive(INFINITY).read(value);
    } catch (const BadValue& error) {
      throw InputError(path, key, printable(value), error.what(), "allowed: a number above 0");
    }
  }
  return rates;
}

std::vector<PhaseSeconds> predict(const std::vector<PhaseCost>& costs, double read, std::int64_t ranks,
                                  const Rates& rates) {
  std::vector<PhaseSeconds> seconds;
  for (const PhaseCost& cost : costs) {
    PhaseSeconds phase{cost.phase};
    const auto gflops = rates.gflops.find(cost.phase);
    phase.compute = gflops == rates.gflops.end()
                        ? read / (rates.read_gb * 1e9)
                        : cost.flops / static_cast<double>(ranks) * cost.fullest / (gflops->second * 1e9);
    phase.transfer = cost.received / (rates.network_gb * 1e9);
    phase.latency = cost.messages * rates.latency_us * 1e-6;
    seconds.push_back(phase);
  }
  return seconds;
}

}  // namespace headspan
