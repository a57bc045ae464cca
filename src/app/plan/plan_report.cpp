#include "app/plan/plan_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "app/plan/cost.h"
#include "app/plan/matrix_sizes.h"
#include "base/checked.h"

namespace headspan {
namespace {

/// Returns one figure per phase.
template <class Item, class Figure>
PlanReport per_phase(const std::vector<Item>& phases, const Figure& figure) {
  PlanReport values = PlanReport::object();
  for (const Item& phase : phases) values[phase.phase] = figure(phase);
  return values;
}

PlanReport division_of(const Job& job, const PlannedStudy& planned) {
  const GroupShape& group = planned.group;
  return {{"ranks", group.ranks * job.run.groups},
          {"groups", job.run.groups},
          {"tensor_parallel", group.tensor_parallel},
          {"data_parallel", group.data_parallel()},
          {"grid", to_string(group.grid)},
          {"units", planned.units},
          {"dtype", dtype_name(planned.dtype)},
          {"n_fit", planned.tokens.fit},
          {"n_heldout", planned.tokens.heldout}};
}

void add_passes(const Job& job, const PlannedStudy& planned, PlanReport& report) {
  const PassSetting setting = pass_setting(job, planned);
  double largest = 0;
  std::vector<std::string> names;
  for (const DeviceShare& pass : planned.passes) {
    largest = std::max(largest, pass_bytes(setting, pass));
    names.push_back(pass_name(setting, pass));
  }
  const double beside = bytes_beside_passes(setting);
  report["bytes_of_the_fullest_gpu"] = {{"beside", beside}, {"sums", largest}, {"peak", beside + largest}};
  report["passes"] = names;
  if (names.empty())
    report["why_no_passes"] = planned.sums_on_gpus() ? "the Grams do not fit the GPUs and are"
                                                     : "with heads of two sizes the Grams are";
}

/// Returns `NAME key=value ..`; numbers with four digits but for counts.
std::string line(const std::string& name, const PlanReport& values) {
  std::string text = name;
  for (const auto& [key, value] : values.items()) {
    char number[32];
    std::snprintf(number, sizeof number, "%.4g", value.is_number() ? value.get<double>() : 0);
    text += " " + key + "=";
    text += value.is_string() ? value.get<std::string>() : value.is_number_integer() ? value.dump() : number;
  }
  return text + "\n";
}

std::string passes_line(const PlanReport& report) {
  std::string names;
  for (const auto& name : report["passes"]) names += (names.empty() ? "" : "; ") + name.get<std::string>();
  if (names.empty()) names = report["why_no_passes"].get<std::string>() + " summed on the CPU";
  return "passes=" + std::to_string(report["passes"].size()) + ": " + names + "\n";
}

}  // namespace

PlanReport report_plan(const Job& job, const PlannedStudy& planned, const MemoryCost& memory,
                       const Rates& rates) {
  const std::vector<PhaseCost> costs = phase_costs(job, planned.config, planned.dtype, planned.tokens,
                                                   planned.group, planned.passes, planned.beside());
  double read = study_weight_bytes(job, planned.config, planned.dtype, 1);
  if (planned.reference) read += reference_weight_bytes(*planned.reference, planned.dtype, 1);
  PlanReport report{{"plan", division_of(job, planned)}};
  report["bytes_of_the_fullest_rank"] = {
      {"program", memory.program},   {"weights", memory.weights},       {"forward", memory.forward},
      {"waiting", memory.waiting},   {"grams", memory.grams},           {"attention", memory.attention},
      {"exchange", memory.exchange}, {"statistics", memory.statistics}, {"peak", memory.peak()}};
  if (job.run.device == ComputeDevice::cuda) add_passes(job, planned, report);
  const std::vector<PhaseSeconds> seconds = predict(costs, read, planned.group.ranks, rates);
  double unit = 0;
  for (const PhaseSeconds& phase : seconds) unit += phase.total();
  report["flops_of_a_unit"] = per_phase(costs, [](const PhaseCost& phase) { return phase.flops; });
  report["bytes_received_by_a_rank_in_a_unit"] =
      per_phase(costs, [](const PhaseCost& phase) { return phase.received; });
  report["messages_to_a_rank_in_a_unit"] =
      per_phase(costs, [](const PhaseCost& phase) { return phase.messages; });
  report["seconds_of_a_unit"] = per_phase(seconds, [](const PhaseSeconds& phase) { return phase.total(); });
  report["seconds_of_a_unit_on_the_network"] =
      per_phase(seconds, [](const PhaseSeconds& phase) { return phase.transfer + phase.latency; });
  report["total"] = {{"bytes_read", read * real(planned.units)},
                     {"seconds", std::ceil(real(planned.units) / real(job.run.groups)) * unit},
                     {"gib_of_the_fullest_rank", memory.peak() / (1 << 30)}};
  report["fits"] = nullptr;
  if (job.run.memory_gib) report["fits"] = memory.peak() <= *job.run.memory_gib * (1 << 30);
  return report;
}

std::string format_plan(const PlanReport& report) {
  std::string text;
  for (const auto& [name, value] : report.items()) {
    if (value.is_object()) text += line(name, value);
    if (name == "passes") text += passes_line(report);
  }
  const PlanReport& fits = report["fits"];
  if (fits.is_null()) return text + "fits=not asked: give --memory-gib\n";
  return fits.get<bool>() ? text + "fits=yes\n" : text;
}

}  // namespace headspan
