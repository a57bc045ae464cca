#include "app/run/rank_resources.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include <unistd.h>

#include "app/run/process_layout.h"
#include "base/checked.h"
#include "base/process/cgroup.h"
#include "base/process/memory.h"
#include "base/provenance.h"
#include "dist/comm/agreement.h"
#include "dist/comm/gpu.h"
#include "dist/comm/node_share.h"
#include "dist/threads.h"
#include "model/core/torch_runtime.h"
#include "model/types/read_config.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

/// Returns the config of each checkpoint folder, by path. Reads each once.
std::map<std::string, ModelConfig> configs_of(const std::vector<Unit>& units) {
  std::map<std::string, ModelConfig> configs;
  for (const Unit& unit : units) {
    if (configs.count(unit.path) == 0) configs[unit.path] = read_model_config(config_of(unit.path));
  }
  return configs;
}

void check_divides(std::int64_t asked, const std::map<std::string, ModelConfig>& configs) {
  for (const auto& [path, config] : configs)
    if (config.kv_heads % asked != 0)
      throw InputError(
          "", "run.tensor_parallel", std::to_string(asked),
          "does not divide the " + std::to_string(config.kv_heads) + " KV heads of " + path + "/config.json",
          "use a divisor of " + std::to_string(config.kv_heads));
}

}  // namespace

std::string format_gib(double bytes, int decimals) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f GiB", decimals, bytes / (1 << 30));
  return text;
}

int choose_tensor_parallel(const Job::Run& run, const Job::Model& model, const LoadedModels& loaded,
                           int ranks, double memory) {
  const auto& configs = loaded.configs;
  if (run.tensor_parallel) {
    check_divides(*run.tensor_parallel, configs);
    check_divides(*run.tensor_parallel, loaded.reference);
    return to_int(*run.tensor_parallel);
  }
  const auto divides_heads = [](int t) {
    return [t](const auto& entry) { return entry.second.kv_heads % t == 0; };
  };
  const auto fits = [&](const ModelConfig& config, int t) {
    double bytes = weight_bytes(config, {config.layers, loaded.logits}, t,
                                planned_weight_dtype(model, config, loaded.dtype));
    for (const auto& [path, reference] : loaded.reference)
      bytes += weight_bytes(reference, {reference.layers, false}, t,
                            weight_dtype(loaded.dtype, reference, nullptr));
    return bytes <= 0.5 * memory;
  };
  for (int t = 1; t <= ranks; ++t)
    if (ranks % t == 0 && std::all_of(configs.begin(), configs.end(), divides_heads(t)) &&
        std::all_of(loaded.reference.begin(), loaded.reference.end(), divides_heads(t)) &&
        std::all_of(configs.begin(), configs.end(), [&](const auto& entry) { return fits(entry.second, t); }))
      return t;
  throw InputError("", "run.tensor_parallel", "auto",
                   "the weights of " + configs.begin()->first + " do not fit half of the " +
                       format_gib(memory, 1) + " of a rank on " + std::to_string(ranks) +
                       (ranks == 1 ? " rank" : " ranks"),
                   std::string("run on more ranks of a group, or set run.") +
                       (run.device == ComputeDevice::cuda ? "gpu_memory_gib" : "memory_gib"));
}

int choose_tensor_parallel(const Job::Run& run, const Job::Model& model, const std::vector<Unit>& units,
                           bool logits, int ranks, double memory) {
  if (units.empty() || units.front().kind != Unit::Kind::model) return 1;
  const auto configs = configs_of(units);
  const Unit& first = units.front();
  std::optional<Checkpoint> checkpoint;
  if (!first.random) checkpoint = Checkpoint::open(first.path);
  const Dtype dtype = forward_dtype(model.dtype, configs.at(first.path), checkpoint ? &*checkpoint : nullptr);
  std::map<std::string, ModelConfig> reference;
  if (!first.reference.empty())
    reference = {{first.reference, read_model_config(config_of(first.reference))}};
  return choose_tensor_parallel(run, model, {configs, dtype, logits, reference}, ranks, memory);
}

void check_one_group(const Job::Run& run, int ranks) {
  if (run.groups != 1)
    throw InputError("", "run.groups", std::to_string(run.groups), "is for studies of many checkpoints",
                     "leave it out");
  check_layout(ranks, 1, run.tensor_parallel.value_or(1), run.grid);
}

Dtype planned_weight_dtype(const Job::Model& model, const ModelConfig& config, Dtype forward) {
  return model.init == std::vector{WeightSource::pretrained} ? weight_dtype(forward, config, nullptr)
                                                             : forward;
}

std::optional<int> choose_gpu(const Job::Run& run, const Comm& world) {
  if (run.device != ComputeDevice::cuda) return {};
  const int node_rank = world.split_shared().rank();
  const Gpus gpus = visible_gpus();
  agree(world, [&] {
    if (gpus.count == 0) throw AgreedError("run.device = cuda: " + hostname() + ": " + gpus.why_none, 1);
  });
  return node_rank % gpus.count;
}

double gpu_memory_of_rank(const Job::Run& run, const Comm& comm, int gpu) {
  if (run.gpu_memory_gib) return *run.gpu_memory_gib * (1 << 30);
  std::int64_t free = 0;
  agree(comm, [&] { free = free_gpu_memory(gpu); });
  return comm.min(static_cast<double>(free) / static_cast<double>(ranks_on_gpu(comm, gpu).size()));
}

int start_threads(const Comm& comm, const Log& log) {
  const int threads = threads_per_rank(comm);
  set_threads(threads);
  set_torch_threads(threads);
  reserve_blas_memory();
  if (!log.is_verbose()) return threads;
  const std::string host = hostname();
  const auto hosts = comm.gather(std::vector<char>(host.begin(), host.end()));
  const auto pids = comm.all_gather(static_cast<int>(getpid())), counts = comm.all_gather(threads);
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    if (comm.is_root())
      log.detail("rank", {{"rank", std::to_string(rank)},
                          {"host", {hosts[rank].begin(), hosts[rank].end()}},
                          {"pid", std::to_string(pids[rank])},
                          {"threads", std::to_string(counts[rank])}});
  return threads;
}

void tell_memory(const Comm& comm, const Log& log) {
  if (!log.is_verbose()) return;
  log.detail("memory", {{"fullest_rank", format_gib(comm.max(peak_process_bytes()), 3)}});
}

double memory_of_rank(const Job::Run& run, const Comm& comm) {
  if (run.memory_gib) return *run.memory_gib * (1 << 30);
  return memory_per_rank(comm, cgroup_limits().memory);
}

}  // namespace headspan
