#include "app/plan/planned_study.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "app/job/job_rules.h"
#include "app/plan/matrix_sizes.h"
#include "app/run/batch_tokens.h"
#include "app/run/process_layout.h"
#include "app/run/rank_resources.h"
#include "app/run/sample.h"
#include "base/checked.h"
#include "base/printable.h"
#include "model/types/read_config.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

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
TokenCounts count_tokens(const Job::Tokens& rule, const ModelConfig& config, const std::string& config_path,
                         const Log& log) {
  std::error_code missing;
  if (!std::filesystem::exists(std::filesystem::symlink_status(rule.path, missing))) {
    const TokenCounts assumed = assume_tokens(rule);
    log.notice(printable(rule.path) + " is missing: " + std::to_string(rule.limit) +
               " tokens in sequences of " + std::to_string(assumed.longest) + " are assumed");
    return assumed;
  }
  return count_tokens(take_sample(rule, config, config_path, ""), rule.skip_first);
}

}  // namespace

PassSetting pass_setting(const Job& job, const PlannedStudy& planned) {
  return {job,
          planned.config,
          planned.dtype,
          planned.tokens.heldout > 0,
          std::max(planned.tokens.longest,
                   batch_tokens(job.run, planned.tokens.total(), planned.group.data_parallel(), true)),
          planned.group,
          planned.beside()};
}

PlannedStudy plan_study(const Job& job, std::int64_t ranks, const Log& log) {
  const std::vector<Unit> units = list_units(job);
  if (units.empty() || units.front().kind != Unit::Kind::model)
    throw InputError("", "model", "", "is missing",
                     "plan is for studies of models: give model.path or model.manifest");
  PlannedStudy planned;
  planned.units = static_cast<std::int64_t>(units.size());
  const std::string config_path = config_of(units.front().path);
  planned.config = read_model_config(config_path);
  const std::string& reference = units.front().reference;
  if (!reference.empty()) planned.reference = read_model_config(config_of(reference));
  check_references(job.predict, most_heads(job.predict, planned.config));
  planned.dtype = forward_dtype(job.model.dtype, planned.config, nullptr);
  check_layout(to_int(ranks), job.run.groups, 1, std::nullopt);
  planned.group.ranks = ranks / job.run.groups;
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
  check_layout(to_int(ranks), job.run.groups, planned.group.tensor_parallel, job.run.grid);
  planned.group.grid = job.run.grid.value_or(squarest_grid(planned.group.ranks));
  check_model_sizes(job, planned.config, planned.group.grid, planned.beside());
  planned.tokens = count_tokens(job.tokens, planned.config, config_path, log);
  if (on_gpus && planned.sums_on_gpus()) planned.passes = plan_passes(pass_setting(job, planned), memory);
  return planned;
}

}  // namespace headspan
