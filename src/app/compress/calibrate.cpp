#include "app/compress/calibrate.h"

#include <algorithm>
#include <cstdio>

#include "app/compress/calibration.h"
#include "app/compress/calibration_effort.h"
#include "app/compress/gram_calibration.h"
#include "app/compress/measured_kl.h"
#include "app/compress/model_calibration.h"
#include "app/compress/oscar_rotations.h"
#include "app/compress/plan_heads.h"
#include "app/compress/plan_latents.h"
#include "app/compress/plan_rounded.h"
#include "app/compress/self_generated_text.h"
#include "app/job/job_file.h"
#include "app/job/job_rules.h"
#include "app/plan/memory_check.h"
#include "app/run/batch_tokens.h"
#include "app/run/input_watch.h"
#include "app/run/library_versions.h"
#include "app/run/model_input.h"
#include "app/run/output_lock.h"
#include "app/run/rank_resources.h"
#include "app/run/run_clock.h"
#include "app/run/write_target.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/provenance.h"
#include "base/sha256.h"
#include "dist/comm/agreement.h"
#include "io/checkpoint/content_digest.h"
#include "io/outputs/lock_file.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

/// What is known before the weights or the Grams are read.
struct Prepared {
  GramOrigin origin;                ///< the model and the tokens, also if no Grams are given
  std::optional<ModelInput> input;  ///< empty if Grams are given
  CalibrationEffort effort;
  Job::Tokens tokens;  ///< the job's; also skips the tokens that a cache keeps exactly
  Sample sample;
};

/// Throws InputError unless `fit` tokens suffice to fit `columns` columns of `what`.
void check_fit_tokens(std::int64_t fit, std::int64_t columns, const std::string& what,
                      const Job::Tokens& tokens) {
  if (fit < 2 * columns)
    throw InputError(tokens.path, "tokens.limit", std::to_string(tokens.limit),
                     "leaves " + std::to_string(fit) + " tokens to fit " + std::to_string(columns) +
                         " columns of " + what + " on",
                     "give at least " + std::to_string(2 * columns) + " behind the first " +
                         std::to_string(tokens.skip_first) + " of each sequence");
}

/// Reads and checks everything that the job names except the values of the weights. Throws InputError. Local.
Prepared prepare(const Job& job) {
  Prepared prepared;
  prepared.tokens = job.tokens;
  prepared.tokens.skip_first = std::max(job.tokens.skip_first, job.compress.exact_first);
  if (job.grams.paths.empty()) {
    prepared.input = open_model(job.model, job.model.path, false, true);
    prepared.origin = {
        prepared.input->config, prepared.input->config_sha256, {}, job.tokens.path, {}, {}, {}};
  } else {
    prepared.origin = check_calibration_grams(job);
    if (is_calibrated(job.compress.algorithm)) prepared.sample.mismatch = prepared.origin.tokens_mismatch;
  }
  const ModelConfig& config = prepared.origin.config;
  check_latents(job.compress, config);
  check_references(job.compress, config.layers, config.kv_heads);
  check_file_name(job.compress.plan, "compress.plan", job.compress.plan);
  if (!prepared.input) prepared.effort = choose_effort(job.compress, config, true, 0);
  if (!prepared.input || !is_calibrated(job.compress.algorithm)) return prepared;
  prepared.sample = take_sample(prepared.tokens, config, prepared.input->config_path, job.model.name);
  std::int64_t fit = 0;
  for (std::size_t s = 0; s < prepared.sample.sequences.size(); ++s)
    if (prepared.sample.heldout[s] == 0)
      fit += std::max<std::int64_t>(0, prepared.sample.sequences[s].length - prepared.tokens.skip_first);
  const std::int64_t most_text = can_start_text(*prepared.input, prepared.sample) ? fit : 0;
  prepared.effort = choose_effort(job.compress, config, false, most_text);
  if (prepared.effort.own_text > 0) check_self_generated_text(*prepared.input, prepared.sample);
  if (rounds_columns(job.compress.algorithm))
    check_fit_tokens(fit, config.head_size, "a head", prepared.tokens);
  else
    check_fit_tokens(fit, config.kv_heads * config.head_size, "a layer", prepared.tokens);
  return prepared;
}

/// Returns the bytes of the Grams of keys and values: one per stream, or one per layer if those suffice.
double calibration_bytes(const Job::Compress& rule, const Prepared& prepared) {
  if (rounds_columns(rule.algorithm)) return 0;
  const ModelConfig& config = prepared.origin.config;
  const bool by_layer = prepared.input && rule.algorithm == CompressionAlgorithm::latent;
  const std::int64_t grams = by_layer ? config.layers : 1;
  const std::vector<double> columns(2, real(config.kv_heads * config.head_size * (config.layers / grams)));
  return real(grams) * gram_bytes(columns, prepared.sample.has_heldout() ? 2 : 1);
}

/// Calibrates by running the model over the tokens. Collective over the group.
Calibration run_model(const Job& job, const Prepared& prepared, const Transformer& model,
                      const ProcessLayout& processes, const Log& log, Profile& profile) {
  CaptureRequest request;
  request.batch_tokens = batch_tokens(job.run, prepared.sample, processes);
  request.skip_first = prepared.tokens.skip_first;
  request.by_layer = job.compress.algorithm == CompressionAlgorithm::latent;
  return calibration_of_model({*prepared.input, job.model.path, prepared.sample, job.predict.mode}, request,
                              model, processes, log, profile);
}

void publish_plan(const Job& job, const Prepared& prepared, const CompressionPlan& plan,
                  const Publication& publication, const Comm& world) {
  const std::string now = iso_time_utc();
  const GramOrigin& origin = prepared.origin;
  const std::string model = job.model.path.empty() ? job.grams.paths.front() : job.model.path;
  NetcdfAttributes more{{"title", "Compression of the KV cache of " + model},
                        {"source", program_name()},
                        {"history", now + " headspan calibrate"},
                        {"date_created", now},
                        {"model_type", origin.config.model_type},
                        {"heads", origin.config.heads},
                        {"hidden_size", origin.config.hidden_size},
                        {"capture", std::string("roped")},
                        {"scope", word_of(reference_scope_words(), job.compress.scope)},
                        {"units", word_of(loss_units_words(), prepared.effort.units)},
                        {"own_text", prepared.effort.own_text},
                        {"bits", stored_bits().write(job.compress.bits)},
                        {"stored_asked", job.compress.stored},
                        {"tokens_path", origin.tokens_path},
                        {"tokens_sha256", origin.tokens_sha256},
                        {"job", to_ini(job, Command::calibrate)},
                        {"versions", library_versions()},
                        {"git", git_id()}};
  if (!prepared.sample.mismatch.empty()) more.push_back({"tokens_mismatch", prepared.sample.mismatch});
  if (!origin.weights_mismatch.empty()) more.push_back({"weights_mismatch", origin.weights_mismatch});
  publish(
      world, publication,
      [&](const std::string& path) {
        if (world.is_root()) write_plan(path, plan, more);
      },
      [&](const std::string& path) { read_plan(path); });
}

/// Returns `measure` so that its seconds count as a phase.
MeasuredKl in_phase(MeasuredKl measure, Profile& profile) {
  return
      [measure = std::move(measure), &profile](Stream stream, std::int64_t layer, const PlannedBlock& block) {
        const auto phase = profile.enter("measure");
        return measure(stream, layer, block);
      };
}

CompressionPlan make_plan(const Job& job, Prepared& prepared, const ProcessLayout& processes, const Log& log,
                          Profile& profile) {
  const ModelConfig& config = prepared.origin.config;
  CompressionPlan plan;
  plan.algorithm = job.compress.algorithm;
  plan.config_sha256 = prepared.origin.config_sha256;
  plan.layers = config.layers;
  plan.kv_heads = config.kv_heads;
  plan.head_size = config.head_size;
  plan.exact_first = job.compress.exact_first;
  const bool rounds = rounds_columns(plan.algorithm);
  if (rounds) plan.streams = plan_rounded(job.compress, config);
  if (!is_calibrated(plan.algorithm)) return plan;
  plan.weights_digest = prepared.origin.weights_digest;
  std::optional<Transformer> model;
  if (prepared.input) model = load_model(job.model, *prepared.input, true, processes, log, job.model.path);
  if (prepared.effort.own_text > 0) {
    const auto phase = profile.enter("own_text");
    add_self_generated_text({prepared.effort.own_text, job.tokens.sequence_length, job.tokens.seed},
                            *prepared.input, *model, processes, log, prepared.sample);
  }
  if (rounds) {
    const auto phase = profile.enter("rotations");
    const RotationTokens tokens{prepared.sample, prepared.tokens.skip_first,
                                batch_tokens(job.run, prepared.sample, processes)};
    set_rotations(*model, *prepared.input, job.model.path, tokens, processes, plan.streams);
    return plan;
  }
  Calibration calibration = model ? run_model(job, prepared, *model, processes, log, profile)
                                  : calibration_of_grams(job, prepared.origin, processes);
  MeasuredKl measure;
  if (prepared.effort.units == LossUnits::measured)
    measure = in_phase(
        make_measured_kl(*model, *prepared.input, prepared.sample, job.compress.exact_first, processes),
        profile);
  else
    model.reset();
  const auto phase = profile.enter("plan");
  if (plan.algorithm == CompressionAlgorithm::latent) {
    plan.streams = plan_latents(job.compress, calibration, measure);
  } else {
    HeadPlan heads = plan_heads(job.compress, calibration, measure);
    plan.streams = std::move(heads.streams);
    plan.references = heads.references;
  }
  for (const auto& [stream, blocks] : plan.streams)
    for (const PlannedBlock& block : blocks) plan.expected_loss += block.expected_loss;
  return plan;
}

void print_stopped(const std::string& plan) {
  std::fprintf(
      stderr,
      "headspan: stopped by a signal: %s is not written; calibrate saves nothing on the way, the same "
      "command begins anew\n",
      escaped(plan).c_str());
}

}  // namespace

int calibrate(const Job& job, const Comm& world, const Log& log) {
  const double start = steady_seconds();
  const InputWatch inputs(job);
  start_threads(world, log);
  const double memory = memory_of_rank(job.run, world);
  Prepared prepared;
  int tensor_parallel = 1;
  agree(world, [&] {
    for (const char* suffix : {"", ".done", ".lock"})
      check_target({"compress.plan", job.compress.plan, job.compress.plan + suffix}, input_files(job));
    prepared = prepare(job);
    check_grams_fit(job.run, calibration_bytes(job.compress, prepared), world.size(), memory);
    check_one_group(job.run, world.size());
    if (!prepared.input) return;
    const ModelInput& input = *prepared.input;
    tensor_parallel = choose_tensor_parallel(
        job.run, job.model, {{{job.model.path, input.config}}, input.dtype, true}, world.size(), memory);
  });
  if (prepared.input && is_calibrated(job.compress.algorithm))
    prepared.origin.tokens_sha256 = hash_tokens(job.tokens, world);
  agree(world, [&] {
    if (world.is_root() && prepared.input)
      prepared.origin.weights_digest = weights_digest(*prepared.input->checkpoint);
  });
  const std::string id = world.broadcast(job_id(), 0);
  std::unique_ptr<LockFile> lock;
  CompressionPlan plan;
  try {
    lock = take_lock(job.compress.plan, id, world, log);
    if (!prepared.input) check_done(world, job.grams.paths, log);
    tell(prepared.sample, log);
    tell("compress.effort", "the loss of compressing each layer is measured", prepared.effort, log);
    if (!prepared.origin.weights_mismatch.empty()) log.warning(prepared.origin.weights_mismatch);
    const ProcessLayout processes(world, 1, tensor_parallel, job.run.grid);
    Profile profile;
    plan = make_plan(job, prepared, processes, log, profile);
    if (!profile.seconds().empty()) log.event("seconds", profile_fields(profile));
  } catch (const Stopped&) {
    if (world.is_root()) print_stopped(job.compress.plan);
    return 1;
  }
  agree(world, [&] { inputs.check(); });
  publish_plan(job, prepared, plan,
               {job.compress.plan, id, sha256_hex(to_ini(job, Command::calibrate)), lock.get()}, world);
  if (world.is_root())
    std::printf(
        "plan=%s algorithm=%s stored=%.4f expected_loss=%.4g units=%s own_text=%lld\n"
        "status=done units=1 skipped=0 seconds=%.1f\n",
        escaped(job.compress.plan).c_str(), word_of(algorithm_words(), plan.algorithm).c_str(),
        plan.stored_bytes() / plan.full_bytes(), plan.expected_loss,
        word_of(loss_units_words(), prepared.effort.units).c_str(),
        static_cast<long long>(prepared.effort.own_text), steady_seconds() - start);
  const std::string model = job.model.path.empty() ? "MODEL" : shell_word(job.model.path);
  log.next("headspan evaluate --model.path " + model + " --evaluate.plan " + shell_word(job.compress.plan) +
           " --evaluate.texts TOKENS");
  return 0;
}

}  // namespace headspan
