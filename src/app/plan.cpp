#include "app/plan.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <map>

#include "app/cost.h"
#include "app/layout.h"
#include "app/sample.h"
#include "app/team.h"
#include "app/value_kind.h"
#include "base/checked.h"
#include "base/input_file.h"
#include "base/printable.h"
#include "dist/agreement.h"
#include "model/weight_loader.h"

namespace headspan {
namespace {

struct Planned {
  GroupShape group;
  std::int64_t units = 0;
  TokenCounts tokens;
  ModelConfig config;
  Dtype dtype = Dtype::float32;
};

/// Of the job's token file, as the first unit's model cuts it.
TokenCounts count_tokens(const Job& job, const ModelConfig& config, const std::string& config_path) {
  const Sample sample = take_sample(job.tokens, config, config_path);
  TokenCounts counts;
  for (std::size_t s = 0; s < sample.sequences.size(); ++s) {
    const std::int64_t length = sample.sequences[s].length;
    const std::int64_t counted = std::max<std::int64_t>(0, length - job.tokens.skip_first);
    (sample.heldout[s] != 0 ? counts.heldout : counts.fit) += counted;
    counts.longest = std::max(counts.longest, length);
  }
  return counts;
}

Planned make_planned(const Job& job, const PlanRequest& request) {
  const std::vector<Unit> units = list_units(job);
  if (units.empty() || units.front().kind != Unit::Kind::model)
    throw InputError("", "model", "", "is missing",
                     "plan is for studies of models: give model.path or model.manifest");
  Planned planned;
  planned.units = static_cast<std::int64_t>(units.size());
  const std::string config_path = units.front().path + "/config.json";
  planned.config = read_model_config(config_path);
  planned.dtype = forward_dtype(job.model.dtype, planned.config, nullptr);
  check_layout(to_int(request.ranks), job.run.groups, 1, std::nullopt);
  planned.group.ranks = request.ranks / job.run.groups;
  const double memory = job.run.memory_gib ? *job.run.memory_gib * (1 << 30) : INFINITY;
  planned.group.tensor_parallel = choose_tensor_parallel(job, {{units.front().path, planned.config}},
                                                         planned.dtype, to_int(planned.group.ranks), memory);
  check_layout(to_int(request.ranks), job.run.groups, planned.group.tensor_parallel, job.run.grid);
  planned.group.grid = job.run.grid.value_or(squarest_grid(planned.group.ranks));
  planned.tokens = count_tokens(job, planned.config, config_path);
  return planned;
}

std::string trimmed(const std::string& text) {
  const std::size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string::npos ? "" : text.substr(first, last - first + 1);
}

void line(const char* name, std::initializer_list<std::pair<const char*, double>> values) {
  std::printf("%s", name);
  for (const auto& [key, value] : values) std::printf(" %s=%.4g", key, value);
  std::printf("\n");
}

void print(const Job& job, const PlanRequest& request, const Planned& planned, const MemoryCost& memory) {
  const GroupShape& group = planned.group;
  const WorkCost work = work_cost(job, planned.config, planned.dtype, planned.tokens);
  const TrafficCost traffic = traffic_cost(job, planned.config, planned.dtype, planned.tokens, group);
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
  line("flops_of_a_unit",
       {{"forward", work.forward}, {"grams", work.grams}, {"statistics", work.statistics}});
  line("bytes_received_by_a_rank_in_a_unit", {{"weights", traffic.weights},
                                              {"tensor_parallel", traffic.tensor_parallel},
                                              {"heads", traffic.heads},
                                              {"panels", traffic.panels},
                                              {"statistics", traffic.statistics}});
  const double ranks = static_cast<double>(group.ranks);
  const double read = work.read / (rates.read_gb * 1e9),
               forward = work.forward / ranks / (rates.forward_gflops * 1e9),
               grams = work.grams / ranks / (rates.gram_gflops * 1e9),
               statistics = work.statistics / ranks / (rates.statistics_gflops * 1e9),
               network = traffic.total() / (rates.network_gb * 1e9);
  line("seconds_of_a_unit", {{"read", read},
                             {"forward", forward},
                             {"grams", grams},
                             {"statistics", statistics},
                             {"network", network}});
  const double rounds = std::ceil(static_cast<double>(planned.units) / static_cast<double>(job.run.groups));
  line("total", {{"bytes_read", work.read * static_cast<double>(planned.units)},
                 {"seconds", rounds * (read + forward + grams + statistics + network)},
                 {"gib_of_the_fullest_rank", memory.peak() / (1 << 30)}});
}

}  // namespace

Rates read_rates(const std::string& path) {
  const InputFile readable(path);
  Rates rates;
  const std::map<std::string, double*> known{{"forward_gflops", &rates.forward_gflops},
                                             {"gram_gflops", &rates.gram_gflops},
                                             {"statistics_gflops", &rates.statistics_gflops},
                                             {"read_gb", &rates.read_gb},
                                             {"network_gb", &rates.network_gb}};
  std::ifstream file(path);
  for (std::string text; std::getline(file, text);) {
    text = text.substr(0, text.find('#'));
    const std::size_t equals = text.find('=');
    const std::string key = trimmed(text.substr(0, equals));
    const std::string value = equals == std::string::npos ? "" : trimmed(text.substr(equals + 1));
    if (key.empty() && value.empty()) continue;
    const auto found = known.find(key);
    if (found == known.end())
      throw InputError(path, printable(key), printable(value), "is not a rate",
                       "forward_gflops, gram_gflops, statistics_gflops, read_gb or network_gb = a number");
    try {
      *found->second = positive(INFINITY).read(value);
    } catch (const BadValue& error) {
      throw InputError(path, key, printable(value), error.what(), "allowed: a number above 0");
    }
  }
  return rates;
}

int plan(const Job& job, const PlanRequest& request, const Comm& world) {
  agree(world, [&] {
    if (!world.is_root()) return;
    const Planned planned = make_planned(job, request);
    const MemoryCost memory = memory_cost(job, planned.config, planned.dtype, planned.tokens, planned.group);
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
