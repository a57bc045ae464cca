#include "app/plan/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>

#include "app/job/job_rules.h"
#include "app/plan/cost.h"
#include "app/plan/job_sizes.h"
#include "app/plan/matrix_sizes.h"
#include "app/plan/memory_cost.h"
#include "app/plan/passes.h"
#include "app/plan/performance.h"
#include "app/run/batch_tokens.h"
#include "app/run/process_layout.h"
#include "app/run/rank_resources.h"
#include "app/run/sample.h"
#include "base/checked.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/process/memory.h"
#include "dist/comm/agreement.h"
#include "model/types/read_config.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

/// The planned study.
struct Planned {
  GroupShape group;  // of each group of ranks; a group works on one unit at a time
  std::int64_t units = 0;
  TokenCounts tokens;
  ModelConfig config;
  std::optional<ModelConfig> reference;
  Dtype dtype = Dtype::float32;
  std::vector<DeviceShare> passes;  // on GPUs; empty: the Grams are summed on the CPU

  const ModelConfig* beside() const { return reference ? &*reference : nullptr; }
  bool sums_on_gpus() const { return !reference || reference->head_size == config.head_size; }
};

/// Returns the counts for tokens.limit tokens in sequences of full length.
TokenCounts assume_tokens(const Job::Tokens& rule) {
  TokenCounts counts;
  counts.longest = std::min(rule.sequence_length, rule.limit);
  const std::int64_t sequences = (rule.limit - 1) / counts.longest + 1;
  const std::int64_t heldout =
      rule.heldout > 0 && sequences > 1
          ? std::clamp<std::int64_t>(std::llround(rule.heldout * real(sequences)), 1, sequences - 1)
          : 0;
  counts.heldout = heldout * std::max<std::int64_t>(0, counts.longest - rule.skip_first);
  counts.fit =
      std::max<std::int64_t>(0, rule.limit - heldout * counts.longest -
                                    (sequences - heldout) * std::min(rule.skip_first, counts.longest));
  return counts;
}

/// Counts the tokens of the job's file, cut for the first unit's model. Assumes them if the file is missing.
TokenCounts count_tokens(const Job::Tokens& rule, const ModelConfig& config, const std::string& config_path) {
  std::error_code missing;
  if (!std::filesystem::exists(std::filesystem::symlink_status(rule.path, missing))) {
    const TokenCounts assumed = assume_tokens(rule);
    Log(true).notice(printable(rule.path) + " is missing: " + std::to_string(rule.limit) +
                     " tokens in sequences of " + std::to_string(assumed.longest) + " are assumed");
    return assumed;
  }
  return count_tokens(take_sample(rule, config, config_path, ""), rule.skip_first);
}

PassSetting pass_setting(const Job& job, const Planned& planned) {
  return {job,
          planned.config,
          planned.dtype,
          planned.tokens.heldout > 0,
          std::max(planned.tokens.longest,
                   batch_tokens(job.run, planned.tokens.total(), planned.group.data_parallel(), true)),
          planned.group,
          planned.beside()};
}

Planned make_planned(const Job& job, const PlanRequest& request) {
  const std::vector<Unit> units = list_units(job);
  if (units.empty() || units.front().kind != Unit::Kind::model)
    throw InputError("", "model", "", "is missing",
                     "plan is for studies of models: give model.path or model.manifest");
  Planned planned;
  planned.units = static_cast<std::int64_t>(units.size());
  const std::string config_path = config_of(units.front().path);
  planned.config = read_model_config(config_path);
  const std::string& reference = units.front().reference;
  if (!reference.empty()) planned.reference = read_model_config(config_of(reference));
  check_references(job.predict, most_heads(job.predict, planned.config));
  planned.dtype = forward_dtype(job.model.dtype, planned.config, nullptr);
  check_layout(to_int(request.ranks), job.run.groups, 1, std::nullopt);
  planned.group.ranks = request.ranks / job.run.groups;
  const bool on_gpus = job.run.device == ComputeDevice::cuda;
  const std::optional<double> gib = on_gpus ? job.run.gpu_memory_gib : job.run.memory_gib;
  if (on_gpus && !gib)
    throw InputError("", "run.gpu_memory_gib", "auto", "is not known where nothing is run",
                     "say how much memory a GPU has");
  const double memory = gib ? *gib * (1 << 30) : INFINITY;
  planned.group.tensor_parallel = choose_tensor_parallel(
      job.run, job.model,
      {{{units.front().path, planned.config}},
       planned.dtype,
       saves_attention(job.predict, job.output),
       planned.reference ? std::map<std::string, ModelConfig>{{reference, *planned.reference}}
                         : std::map<std::string, ModelConfig>{}},
      to_int(planned.group.ranks), memory);
  check_layout(to_int(request.ranks), job.run.groups, planned.group.tensor_parallel, job.run.grid);
  planned.group.grid = job.run.grid.value_or(squarest_grid(planned.group.ranks));
  check_model_sizes(job, planned.config, planned.group.grid, planned.beside());
  planned.tokens = count_tokens(job.tokens, planned.config, config_path);
  if (on_gpus && planned.sums_on_gpus()) planned.passes = plan_passes(pass_setting(job, planned), memory);
  return planned;
}

void line(const char* name, const std::vector<std::pair<std::string, double>>& values) {
  std::printf("%s", name);
  for (const auto& [key, value] : values) std::printf(" %s=%.4g", key.c_str(), value);
  std::printf("\n");
}

/// Prints one figure per phase.
template <class Item, class Figure>
void phase_line(const char* name, const std::vector<Item>& phases, const Figure& figure) {
  std::vector<std::pair<std::string, double>> values;
  values.reserve(phases.size());
  for (const Item& phase : phases) values.emplace_back(phase.phase, figure(phase));
  line(name, values);
}

/// Returns what stays in host memory when the model runs and the Grams are summed on GPUs.
MemoryCost beside_gpus(MemoryCost memory) {
  constexpr double kPinned = 2 * 512.0 * (1 << 20);  // two stripes in transfer (device/device_gram.cpp)
  memory.weights = memory.forward = memory.waiting = 0;
  memory.exchange = kPinned;
  return memory;
}

void print_passes(const Job& job, const Planned& planned) {
  const PassSetting setting = pass_setting(job, planned);
  double largest = 0;
  std::string names;
  for (const DeviceShare& pass : planned.passes) {
    largest = std::max(largest, pass_bytes(setting, pass));
    names += (names.empty() ? "" : "; ") + pass_name(setting, pass);
  }
  const double beside = bytes_beside_passes(setting);
  line("bytes_of_the_fullest_gpu", {{"beside", beside}, {"sums", largest}, {"peak", beside + largest}});
  if (planned.passes.empty())
    std::printf("passes=0: %s summed on the CPU\n", planned.sums_on_gpus()
                                                        ? "the Grams do not fit the GPUs and are"
                                                        : "with heads of two sizes the Grams are");
  else
    std::printf("passes=%zu: %s\n", planned.passes.size(), names.c_str());
}

void print(const Job& job, const PlanRequest& request, const Planned& planned, const MemoryCost& memory) {
  const GroupShape& group = planned.group;
  const std::vector<PhaseCost> costs = phase_costs(job, planned.config, planned.dtype, planned.tokens, group,
                                                   planned.passes, planned.beside());
  double read = study_weight_bytes(job, planned.config, planned.dtype, 1);
  if (planned.reference) read += reference_weight_bytes(*planned.reference, planned.dtype, 1);
  const Rates rates = request.rates.empty() ? Rates() : read_rates(request.rates);
  std::printf(
      "plan ranks=%lld groups=%lld tensor_parallel=%lld data_parallel=%lld grid=%lldx%lld units=%lld "
      "dtype=%s n_fit=%lld n_heldout=%lld\n",
      static_cast<long long>(request.ranks), static_cast<long long>(job.run.groups),
      static_cast<long long>(group.tensor_parallel), static_cast<long long>(group.data_parallel()),
      static_cast<long long>(group.grid.rows), static_cast<long long>(group.grid.columns),
      static_cast<long long>(planned.units), dtype_name(planned.dtype).c_str(),
      static_cast<long long>(planned.tokens.fit), static_cast<long long>(planned.tokens.heldout));
  line("bytes_of_the_fullest_rank", {{"program", memory.program},
                                     {"weights", memory.weights},
                                     {"forward", memory.forward},
                                     {"waiting", memory.waiting},
                                     {"grams", memory.grams},
                                     {"attention", memory.attention},
                                     {"exchange", memory.exchange},
                                     {"statistics", memory.statistics},
                                     {"peak", memory.peak()}});
  if (job.run.device == ComputeDevice::cuda) print_passes(job, planned);
  const std::vector<PhaseSeconds> seconds = predict(costs, read, group.ranks, rates);
  double unit = 0;
  for (const PhaseSeconds& phase : seconds) unit += phase.total();
  phase_line("flops_of_a_unit", costs, [](const PhaseCost& phase) { return phase.flops; });
  phase_line("bytes_received_by_a_rank_in_a_unit", costs,
             [](const PhaseCost& phase) { return phase.received; });
  phase_line("messages_to_a_rank_in_a_unit", costs, [](const PhaseCost& phase) { return phase.messages; });
  phase_line("seconds_of_a_unit", seconds, [](const PhaseSeconds& phase) { return phase.total(); });
  phase_line("seconds_of_a_unit_on_the_network", seconds,
             [](const PhaseSeconds& phase) { return phase.transfer + phase.latency; });
  const double rounds = std::ceil(static_cast<double>(planned.units) / static_cast<double>(job.run.groups));
  line("total", {{"bytes_read", read * static_cast<double>(planned.units)},
                 {"seconds", rounds * unit},
                 {"gib_of_the_fullest_rank", memory.peak() / (1 << 30)}});
}

}  // namespace

int plan(const Job& job, const PlanRequest& request, const Comm& world) {
  agree(world, [&] {
    if (!world.is_root()) return;
    const Planned planned = make_planned(job, request);
    MemoryCost memory =
        memory_cost(job, planned.config, planned.dtype, planned.tokens, planned.group, planned.beside());
    if (!planned.passes.empty()) memory = beside_gpus(memory);
    memory.program = idle_process_bytes();
    print(job, request, planned, memory);
    if (job.run.memory_gib && memory.peak() > *job.run.memory_gib * (1 << 30)) {
      char needed[32];
      std::snprintf(needed, sizeof needed, "%.2f", memory.peak() / (1 << 30));
      throw InputError("", "run.memory_gib", std::to_string(*job.run.memory_gib),
                       std::string("is not enough: the fullest rank needs ") + needed + " GiB",
                       "use more ranks in a group, or fewer streams at a time");
    }
    std::printf("fits=%s\n", job.run.memory_gib ? "yes" : "not asked: give --memory-gib");
  });
  return 0;
}

}  // namespace headspan
