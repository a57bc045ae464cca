#include "app/run/rank_resources.h"

#include <algorithm>
#include <cstdio>
#include <map>

#include "app/run/process_layout.h"
#include "base/checked.h"
#include "base/process/cgroup.h"
#include "base/provenance.h"
#include "dist/comm/agreement.h"
#include "dist/comm/gpu.h"
#include "dist/comm/node_share.h"
#include "dist/threads.h"
#include "model/core/torch_runtime.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

/// The configs of the checkpoints, each folder once, with their paths.
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

int choose_tensor_parallel(const Job& job, const std::map<std::string, ModelConfig>& configs, Dtype dtype,
                           int group_ranks, double memory_bytes) {
  if (job.run.tensor_parallel) {
    check_divides(*job.run.tensor_parallel, configs);
    return to_int(*job.run.tensor_parallel);
  }
  const auto fits = [&](const auto& entry, int t) {
    const ModelConfig& config = entry.second;
    return config.kv_heads % t == 0 &&
           weight_bytes(config, {config.layers, false}, t, planned_weight_dtype(job, config, dtype)) <=
               0.5 * memory_bytes;
  };
  for (int t = 1; t <= group_ranks; ++t)
    if (group_ranks % t == 0 &&
        std::all_of(configs.begin(), configs.end(), [&](const auto& entry) { return fits(entry, t); }))
      return t;
  throw InputError("", "run.tensor_parallel", "auto",
                   "the weights of " + configs.begin()->first + " do not fit half of the " +
                       format_gib(memory_bytes, 1) + " of a rank on " + std::to_string(group_ranks) +
                       (group_ranks == 1 ? " rank" : " ranks"),
                   std::string("run on more ranks of a group, or set run.") +
                       (job.run.device == ComputeDevice::cuda ? "gpu_memory_gib" : "memory_gib"));
}

int choose_tensor_parallel(const Job& job, const std::vector<Unit>& units, int group_ranks,
                           double memory_bytes) {
  if (units.empty() || units.front().kind != Unit::Kind::model) return 1;
  const auto configs = configs_of(units);
  const Unit& first = units.front();
  std::optional<Checkpoint> checkpoint;
  if (!first.random) checkpoint = Checkpoint::open(first.path);
  const Dtype dtype =
      forward_dtype(job.model.dtype, configs.at(first.path), checkpoint ? &*checkpoint : nullptr);
  return choose_tensor_parallel(job, configs, dtype, group_ranks, memory_bytes);
}

void check_one_group(const Job& job, int ranks) {
  if (job.run.groups != 1)
    throw InputError("", "run.groups", std::to_string(job.run.groups), "is for studies of many checkpoints",
                     "leave it out");
  check_layout(ranks, 1, job.run.tensor_parallel.value_or(1), job.run.grid);
}

int choose_tensor_parallel(const Job& job, const ModelConfig& config, Dtype dtype, int ranks,
                           double memory_bytes) {
  check_one_group(job, ranks);
  return choose_tensor_parallel(job, {{job.model.path, config}}, dtype, ranks, memory_bytes);
}

Dtype planned_weight_dtype(const Job& job, const ModelConfig& config, Dtype forward) {
  return job.model.init == std::vector{WeightSource::pretrained} ? weight_dtype(forward, config, nullptr)
                                                                 : forward;
}

void refuse_gpu(const Job& job) {
  if (job.run.device == ComputeDevice::cuda)
    throw AgreedError("run.device = cuda: is for study and evaluate; leave it out here", 1);
}

std::optional<int> choose_gpu(const Job& job, const Comm& world) {
  if (job.run.device != ComputeDevice::cuda) return {};
  const int place = world.split_shared().rank();
  const Gpus gpus = visible_gpus();
  agree(world, [&] {
    if (gpus.count == 0) throw AgreedError("run.device = cuda: " + hostname() + ": " + gpus.why_none, 1);
  });
  return place % gpus.count;
}

double gpu_memory_of_rank(const Job& job, const Comm& comm, int gpu) {
  if (job.run.gpu_memory_gib) return *job.run.gpu_memory_gib * (1 << 30);
  std::int64_t free = 0;
  agree(comm, [&] { free = free_gpu_memory(gpu); });
  return comm.min(static_cast<double>(free) / static_cast<double>(ranks_on_gpu(comm, gpu).size()));
}

int start_threads(const Comm& comm) {
  const int threads = threads_per_rank(comm);
  set_threads(threads);
  set_torch_threads(threads);
  reserve_blas_memory();
  return threads;
}

double memory_of_rank(const Job& job, const Comm& comm) {
  if (job.run.memory_gib) return *job.run.memory_gib * (1 << 30);
  return memory_per_rank(comm, cgroup_limits().memory);
}

}  // namespace headspan
