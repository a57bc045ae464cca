#include "app/archive/calibrate_codec.h"

#include <algorithm>
#include <cstdio>

#include "app/archive/codec_curve.h"
#include "app/archive/codec_groups.h"
#include "app/archive/codec_rotary.h"
#include "app/archive/codec_runs.h"
#include "app/archive/codec_statistics.h"
#include "app/archive/loss_metrics.h"
#include "app/compress/calibration_effort.h"
#include "app/compress/model_calibration.h"
#include "app/compress/self_generated_text.h"
#include "app/job/job_file.h"
#include "app/plan/memory_check.h"
#include "app/run/batch_tokens.h"
#include "app/run/input_watch.h"
#include "app/run/library_versions.h"
#include "app/run/model_input.h"
#include "app/run/output_lock.h"
#include "app/run/rank_resources.h"
#include "app/run/run_clock.h"
#include "app/run/write_target.h"
#include "base/checked.h"
#include "base/clock.h"
#include "base/printable.h"
#include "base/provenance.h"
#include "base/sha256.h"
#include "dist/comm/agreement.h"
#include "io/archive/codec_file.h"
#include "io/checkpoint/content_digest.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

constexpr std::int64_t kMostLayers = 16;      // of a group, unless asked: more would decode slower
constexpr std::int64_t kTokensPerColumn = 8;  // of a group, at least, unless asked

struct Prepared {
  ModelInput input;
  Job::Tokens tokens;  ///< the job's; also skips the tokens that archives keep as they are
  Sample sample;       ///< the model's own text is added to it
  GroupSize size;
  CalibrationEffort effort;
  KvCodec codec;  ///< sizes, digests and rotary rules
  std::string tokens_sha256;
};

/// Returns the size of the groups: the bases take at most `maps` of the weights' bytes. Unless asked, there
/// are enough tokens to fit a group to, and it keeps all of its coefficients.
GroupSize group_size(const Job::Archive& archive, const ModelConfig& config, double weight_bytes,
                     std::int64_t fit_tokens) {
  const std::int64_t of_layer = config.kv_heads * config.head_size;
  if (archive.algorithm == ArchiveAlgorithm::kvtc)
    return {archive.group.value_or(config.layers), config.layers * of_layer};
  const auto coefficients = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(archive.maps * weight_bytes / (2 * real(config.layers * of_layer))));
  const std::int64_t most =
      std::min({coefficients / of_layer, fit_tokens / (kTokensPerColumn * of_layer), kMostLayers});
  return {std::min(archive.group.value_or(std::max<std::int64_t>(most, 1)), config.layers), coefficients};
}

double bytes_of(const Checkpoint& checkpoint) {
  double bytes = 0;
  for (const std::string& name : checkpoint.names()) {
    const TensorEntry& entry = checkpoint.entry(name);
    bytes += real(entry.end - entry.begin);
  }
  return bytes;
}

std::int64_t fit_tokens(const Sample& sample, std::int64_t skip_first) {
  std::int64_t fit = 0;
  for (std::size_t s = 0; s < sample.sequences.size(); ++s)
    if (sample.heldout[s] == 0) fit += std::max<std::int64_t>(0, sample.sequences[s].length - skip_first);
  return fit;
}

/// Throws InputError unless there are twice as many tokens to fit to as a group has columns.
void check_fit_tokens(std::int64_t fit, const Prepared& prepared) {
  const ModelConfig& config = prepared.input.config;
  const std::int64_t columns = prepared.size.layers * config.kv_heads * config.head_size;
  if (fit < 2 * columns)
    throw InputError(prepared.tokens.path, "tokens.limit", std::to_string(prepared.tokens.limit),
                     "leaves " + std::to_string(fit) + " tokens to fit " + std::to_string(columns) +
                         " columns of a group of layers on",
                     "give at least " + std::to_string(2 * columns) +
                         (prepared.size.layers > 1 ? ", or fewer layers in archive.group" : ""));
}

/// Reads and checks everything that the job names except the values of the weights. Throws InputError. Local.
Prepared prepare(const Job& job) {
  Prepared prepared{open_model(job.model, job.model.path, false, true), job.tokens, {}, {}, {}, {}, {}};
  const ModelConfig& config = prepared.input.config;
  prepared.tokens.skip_first = std::max(job.tokens.skip_first, job.archive.exact_first);
  prepared.sample = take_sample(prepared.tokens, config, prepared.input.config_path, job.model.name);
  const std::int64_t of_text = fit_tokens(prepared.sample, prepared.tokens.skip_first);
  prepared.effort =
      choose_effort(job.archive, config, can_start_text(prepared.input, prepared.sample) ? of_text : 0);
  if (prepared.effort.own_text > 0) check_self_generated_text(prepared.input, prepared.sample);
  const std::int64_t fit = of_text + prepared.effort.own_text;
  prepared.size = group_size(job.archive, config, bytes_of(*prepared.input.checkpoint), fit);
  check_fit_tokens(fit, prepared);
  KvCodec& codec = prepared.codec;
  codec.config_sha256 = prepared.input.config_sha256;
  codec.layers = config.layers;
  codec.kv_heads = config.kv_heads;
  codec.head_size = config.head_size;
  codec.exact_first = job.archive.exact_first;
  set_rotary(config, prepared.input.config_path, codec);
  return prepared;
}

/// The metric in which all columns count alike.
std::vector<double> plain_metric(const KvCodec& codec) {
  const std::int64_t d = codec.head_size;
  std::vector<double> metric(to_size(codec.layers * codec.kv_heads * d * d));
  for (std::int64_t row = 0; row < codec.layers * codec.kv_heads * d; ++row)
    metric[to_size(row * d + row % d)] = 1;
  return metric;
}

/// The metrics of all heads that the codec's groups are fitted in. Collective over the group.
std::map<Stream, std::vector<double>> formula_metrics(const Calibration& calibration,
                                                      const Prepared& prepared, ArchiveAlgorithm algorithm) {
  const KvCodec& codec = prepared.codec;
  if (algorithm == ArchiveAlgorithm::kvtc)
    return {{Stream::k, plain_metric(codec)}, {Stream::v, plain_metric(codec)}};
  std::map<Stream, std::vector<double>> metrics = head_metrics(calibration);
  metrics[Stream::k] =
      key_metric_before_rotary(codec, metrics.at(Stream::k), prepared.tokens.sequence_length);
  return metrics;
}

/// Makes a codec on a group of processes.
class CodecMaker {
 public:
  CodecMaker(const Job& job, Prepared& prepared, const ProcessLayout& processes, const Log& log,
             Profile& profile)
      : job_(job),
        prepared_(prepared),
        processes_(processes),
        log_(log),
        profile_(profile),
        model_(load_model(job.model, prepared.input, true, processes, log, job.model.path)),
        ends_(document_ends(job.tokens, prepared.input.config)) {}

  /// Collective over the group.
  KvCodec make() {
    if (prepared_.effort.own_text > 0) {
      const auto phase = profile_.enter("own_text");
      add_self_generated_text({prepared_.effort.own_text, job_.tokens.sequence_length, job_.tokens.seed},
                              prepared_.input, model_, processes_, log_, prepared_.sample);
    }
    KvCodec codec = prepared_.codec;
    codec.streams = groups();
    {
      const auto phase = profile_.enter("statistics");
      const CodecTokens tokens{prepared_.sample, prepared_.tokens.skip_first,
                               batch_tokens(job_.run, prepared_.sample, processes_)};
      if (job_.archive.algorithm == ArchiveAlgorithm::kvtc)
        set_runs(model_, tokens, processes_, codec);
      else
        set_statistics(model_, tokens, processes_, codec);
    }
    const auto phase = profile_.enter("curve");
    Recoder recoder(codec, 0, ends_);
    const CachedModel cached(model_, prepared_.input, processes_,
                             [&](const auto& ids, auto& k, auto& v) { recoder.recode(ids, k, v); });
    codec.curve = measure_curve(cached, prepared_.sample, recoder);
    return codec;
  }

 private:
  std::map<Stream, std::vector<CodecGroup>> groups() {
    CaptureRequest request;
    request.point = CapturePoint::normed;  // before the rotary embedding
    request.batch_tokens = batch_tokens(job_.run, prepared_.sample, processes_);
    request.skip_first = prepared_.tokens.skip_first;
    const Calibration calibration =
        calibration_of_model({prepared_.input, job_.model.path, prepared_.sample, PredictMode::corrected},
                             request, model_, processes_, log_, profile_);
    std::map<Stream, std::vector<double>> metrics;
    if (prepared_.effort.units == LossUnits::measured) {
      const auto phase = profile_.enter("gradients");
      metrics =
          loss_metrics(model_, prepared_.sample, prepared_.tokens.skip_first, job_.tokens.seed, processes_);
    } else {
      metrics = formula_metrics(calibration, prepared_, job_.archive.algorithm);
    }
    const auto phase = profile_.enter("groups");
    return fit_groups(calibration, metrics, prepared_.size);
  }

  const Job& job_;
  Prepared& prepared_;
  const ProcessLayout& processes_;
  const Log& log_;
  Profile& profile_;
  const Transformer model_;
  const std::vector<std::int64_t> ends_;
};

/// Leaves out what cannot be done on several tensor-parallel ranks, or refuses it where it is asked for.
void limit_effort(const Job& job, int tensor_parallel, CalibrationEffort& effort) {
  if (tensor_parallel == 1 || effort.units != LossUnits::measured) return;
  if (job.archive.effort == Effort::full)
    throw InputError("", "archive.effort", "full",
                     "differentiates a model that is whole on a rank, and " +
                         std::to_string(tensor_parallel) + " ranks share it (run.tensor_parallel)",
                     "give archive.effort = quick, or run.tensor_parallel = 1");
  effort.units = LossUnits::residual;
}

std::string metric_word(ArchiveAlgorithm algorithm, const CalibrationEffort& effort) {
  if (algorithm == ArchiveAlgorithm::kvtc) return "plain";
  return effort.units == LossUnits::measured ? "loss" : "attention";
}

void publish_codec(const Job& job, const Prepared& prepared, const KvCodec& codec,
                   const Publication& publication, const Comm& world) {
  const std::string now = iso_time_utc();
  NetcdfAttributes more{{"title", "Codec of the keys and values of " + job.model.path},
                        {"source", program_name()},
                        {"history", now + " headspan archive calibrate"},
                        {"date_created", now},
                        {"model_type", prepared.input.config.model_type},
                        {"tokens_path", job.tokens.path},
                        {"tokens_sha256", prepared.tokens_sha256},
                        {"metric", metric_word(job.archive.algorithm, prepared.effort)},
                        {"own_text", prepared.effort.own_text},
                        {"job", to_ini(job, Command::archive_calibrate)},
                        {"versions", library_versions()},
                        {"git", git_id()}};
  if (!prepared.sample.mismatch.empty()) more.push_back({"tokens_mismatch", prepared.sample.mismatch});
  publish(
      world, publication,
      [&](const std::string& path) {
        if (world.is_root()) write_codec(path, codec, more);
      },
      [](const std::string& path) { read_codec(path); });
}

void print_summary(const Job& job, const KvCodec& codec, double seconds) {
  for (const RatePoint& point : codec.curve)
    std::printf("step=%d bits=%.3f kl=%.3g\n", point.step, point.bits, point.kl);
  std::printf("codec=%s groups=%zu\nstatus=done units=1 skipped=0 seconds=%.1f\n",
              escaped(job.archive.codec).c_str(), codec.streams.at(Stream::k).size(), seconds);
}

}  // namespace

int calibrate_codec(const Job& job, const Comm& world, const Log& log) {
  const double start = steady_seconds();
  const InputWatch inputs(job);
  start_threads(world, log);
  const double memory = memory_of_rank(job.run, world);
  std::optional<Prepared> prepared;
  int tensor_parallel = 1;
  const std::string& path = job.archive.codec;
  agree(world, [&] {
    for (const char* suffix : {"", ".done", ".lock"})
      check_target({"archive.codec", path, path + suffix}, input_files(job));
    check_file_name(path, "archive.codec", path);
    prepared = prepare(job);
    const ModelConfig& config = prepared->input.config;
    const std::vector<double> columns(2, real(config.layers * config.kv_heads * config.head_size));
    check_grams_fit(job.run, gram_bytes(columns, prepared->sample.has_heldout() ? 2 : 1), world.size(),
                    memory);
    check_one_group(job.run, world.size());
    tensor_parallel = choose_tensor_parallel(
        job.run, job.model, {{{job.model.path, config}}, prepared->input.dtype, true}, world.size(), memory);
    limit_effort(job, tensor_parallel, prepared->effort);
  });
  prepared->tokens_sha256 = hash_tokens(job.tokens, world);
  agree(world, [&] { prepared->codec.weights_digest = weights_digest(*prepared->input.checkpoint); });
  const std::string id = world.broadcast(job_id(), 0);
  KvCodec codec;
  std::unique_ptr<LockFile> lock;
  try {
    lock = take_lock(path, id, world, log);
    tell(prepared->sample, log);
    tell("archive.effort", "the model's loss is differentiated", prepared->effort, log);
    const ProcessLayout processes(world, 1, tensor_parallel, job.run.grid);
    Profile profile;
    codec = CodecMaker(job, *prepared, processes, log, profile).make();
    log.event("seconds", profile_fields(profile));
  } catch (const Stopped&) {
    if (world.is_root())
      std::fprintf(stderr, "headspan: stopped by a signal: %s is not written\n", escaped(path).c_str());
    return 1;
  }
  agree(world, [&] { inputs.check(); });
  publish_codec(job, *prepared, codec,
                {path, id, sha256_hex(to_ini(job, Command::archive_calibrate)), lock.get()}, world);
  if (world.is_root()) print_summary(job, codec, steady_seconds() - start);
  log.next("headspan archive encode --archive.codec " + shell_word(path) +
           " --archive.input KV.safetensors --archive.output KV.hsa");
  return 0;
}

}  // namespace headspan
