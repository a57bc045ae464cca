#include "app/layout.h"

#include <set>

#include <ATen/ATen.h>
#include <sys/sysinfo.h>

#include "model/weight_loader.h"

namespace headspan {
namespace {

std::string gib(double bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", bytes / (1 << 30));
  return text;
}

/// Bytes of a model's weights on one of `tensor_parallel` ranks.
double weights_of(const Job& job, const Unit& unit, const ModelConfig& config, int tensor_parallel) {
  std::optional<Checkpoint> checkpoint;
  if (!unit.random) checkpoint = Checkpoint::open(unit.path);
  const auto dtype = forward_dtype(job.model.dtype, config, checkpoint ? &*checkpoint : nullptr);
  return static_cast<double>(weight_bytes(config, {config.layers, false}, tensor_parallel, dtype));
}

}  // namespace

int choose_tensor_parallel(const Job& job, const std::vector<Unit>& units, int group_ranks,
                           double memory_bytes) {
  if (units.empty() || units.front().kind != Unit::Kind::model) return 1;
  const std::string first_path = units.front().path + "/config.json";
  const ModelConfig first = read_model_config(first_path);
  if (job.run.tensor_parallel) {
    const std::int64_t asked = *job.run.tensor_parallel;
    std::set<std::string> seen;
    for (const Unit& unit : units) {
      if (!seen.insert(unit.path).second) continue;
      const std::string path = unit.path + "/config.json";
      const std::int64_t kv_heads = read_model_config(path).kv_heads;
      if (kv_heads % asked != 0)
        throw InputError("", "run.tensor_parallel", std::to_string(asked),
                         "does not divide the " + std::to_string(kv_heads) + " KV heads of " + path,
                         "use a divisor of " + std::to_string(kv_heads));
    }
    return static_cast<int>(asked);
  }
  for (int t = 1; t <= group_ranks; ++t)
    if (group_ranks % t == 0 && first.kv_heads % t == 0 &&
        weights_of(job, units.front(), first, t) <= 0.5 * memory_bytes)
      return t;
  throw InputError("", "run.tensor_parallel", "auto",
                   "the weights of " + units.front().path + " do not fit half of the " + gib(memory_bytes) +
                       " of a rank on " + std::to_string(group_ranks) + " ranks",
                   "run on more ranks of a group, or set run.memory_gib");
}

double memory_of_rank(const Job& job, const Comm& comm) {
  if (job.run.memory_gib) return *job.run.memory_gib * (1 << 30);
  struct sysinfo info {};
  if (sysinfo(&info) != 0) throw_errno("cannot learn the node's memory", "sysinfo");
  const double node = static_cast<double>(info.totalram) * static_cast<double>(info.mem_unit);
  return comm.min(node / comm.split_shared().size());
}

}  // namespace headspan
