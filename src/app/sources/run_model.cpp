#include "app/sources/run_model.h"

#include <algorithm>

#include "app/capture/capture.h"
#include "app/job/job_rules.h"
#include "app/plan/job_sizes.h"
#include "app/plan/matrix_sizes.h"
#include "app/plan/passes.h"
#include "app/run/model_input.h"
#include "device/device_values.h"
#include "dist/comm/agreement.h"
#include "io/checkpoint/content_digest.h"
#include "model/weights/projections.h"

namespace headspan {
namespace {

/// The model of a unit and its tokens.
struct Prepared {
  ModelInput input;
  Sample sample;
};

/// Throws InputError for everything that is wrong with the unit but the values of its weights. Local.
Prepared prepare(const Job& job, const Unit& unit) {
  Prepared prepared{open_model(job.model, unit.path, unit.random, saves_attention(job)), {}};
  check_references(job.predict, most_heads(job, prepared.input.config));
  const Dtype dtype = prepared.input.dtype;
  if (job.predict.precision == Precision::bfloat16 && dtype != Dtype::bfloat16 && dtype != Dtype::float16)
    throw InputError("", "predict.precision", "bfloat16", "is coarser than a forward in " + dtype_name(dtype),
                     "set model.dtype to bfloat16 or float16, or choose float64, float32 or split");
  prepared.sample =
      take_sample(job.tokens, prepared.input.config, prepared.input.config_path, unit.model_name);
  return prepared;
}

Projections projections(const Job& job, const Prepared& prepared) {
  const ModelInput& input = prepared.input;
  if (input.checkpoint) return {input.config, *input.checkpoint};
  return {input.config, static_cast<std::uint64_t>(job.model.seed), input.dtype};
}

/// All of a stream but its Grams.
StreamEvidence announce(const Job& job, const Prepared& prepared, Stream stream) {
  const Dtype dtype = prepared.input.dtype;
  const Precision precision = job.predict.precision;
  return {{stream, job.predict.capture, dtype, precision, job.tokens.skip_first},
          stream_layout(prepared.input.config, stream),
          fit_rules(job.predict.mode, dtype, precision)};
}

/// Whether all of a Gram has to come to the host.
bool needs_whole_grams(const Job& job) {
  return job.output.save_gram || (job.ceiling.enabled && job.ceiling.scope != CeilingScope::layer);
}

/// Where the Grams grow and in which passes; tells where that is not in one pass on the GPUs. Their names.
std::vector<std::string> choose_passes(const Job& job, const std::string& unit, const Prepared& prepared,
                                       const ProcessLayout& team, const Log& log, CaptureRequest& request) {
  if (!team.gpu()) return {};
  std::int64_t longest = 0;
  for (const Sequence& sequence : prepared.sample.sequences) longest = std::max(longest, sequence.length);
  const PassSetting setting{job,
                            prepared.input.config,
                            prepared.input.dtype,
                            prepared.sample.has_heldout(),
                            std::max(longest, request.batch_tokens),
                            {team.group().size(), team.tensor().size(), team.grid().shape()}};
  request.passes = plan_passes(setting, team.gpu_memory());
  if (request.passes.empty()) {
    log.notice(unit + ": the Grams do not fit the memory of the GPUs; they are summed on the CPU");
    return {};
  }
  request.device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*team.gpu()));
  std::vector<std::string> names;
  for (const DeviceShare& pass : request.passes) names.push_back(pass_name(setting, pass));
  if (names.size() > 1)
    log.notice(unit + ": the Grams do not fit the memory of the GPUs at once; they are summed in " +
               std::to_string(names.size()) + " passes over the tokens");
  return names;
}

/// The digests of `evidence` from what has been opened, and what the unit is known by when it goes on: as
/// these very files of weights, and as the tokens that are run. Equal on every rank. Collective over the
/// group.
std::string identify(const Prepared& prepared, const Comm& comm, UnitEvidence& evidence) {
  std::string contents;
  agree(comm, [&] {
    if (!comm.is_root()) return;
    contents = "config.json " + prepared.input.config_sha256 + "\n";
    if (const auto& checkpoint = prepared.input.checkpoint) {
      evidence.weights_digest = weights_digest(*checkpoint);
      contents += "weights " + evidence.weights_digest + " " + change_times(checkpoint->files()) + "\n";
    }
    contents += "tokens " + sample_digest(prepared.sample) + "\n";
  });
  evidence.config_sha256 = prepared.input.config_sha256;
  evidence.weights_digest = comm.broadcast(evidence.weights_digest, 0);
  return comm.broadcast(contents, 0);
}

/// Fills in the Grams of the streams; the weights are in memory no longer than that.
void capture(const UnitRun& unit_run, const Prepared& prepared, UnitEvidence& evidence) {
  const Job& job = unit_run.job;
  const Unit& unit = unit_run.unit;
  const ProcessLayout& team = unit_run.team;
  const Log& log = unit_run.log;
  const bool attention = saves_attention(job);
  const ModelConfig& config = prepared.input.config;
  const Transformer model = [&] {
    const Profile::Phase phase = unit_run.profile.enter("load");
    return load_model(job.model, prepared.input, attention, team, log, unit.name);
  }();
  CaptureRequest request;
  std::vector<GramStream> saved;
  for (const StreamEvidence& stream : evidence.streams)
    saved.push_back(gram_stream(stream.origin, stream.layout, prepared.sample.has_heldout()));
  request.streams = job.predict.streams;
  request.point = job.predict.capture;
  request.precision = job.predict.precision;
  request.skip_first = job.tokens.skip_first;
  request.batch_tokens = batch_tokens(job.run, prepared.sample, team);
  const std::vector<std::string> passes = choose_passes(job, unit.name, prepared, team, log, request);
  std::optional<AttentionSums> sums;
  if (attention) sums.emplace(config.layers, config.heads, config.kv_heads, config.head_size);
  AttentionSums* const summed = sums ? &*sums : nullptr;
  const UnitState state(unit_run, saved, identify(prepared, team.group(), evidence), summed, passes);
  std::int64_t tokens_run = request.passes.empty() ? prepared.sample.total() : 0;
  for (const DeviceShare& pass : request.passes) tokens_run += tokens_of(pass, prepared.sample);
  Progress progress(log, "forward", "tokens", tokens_run, {{"unit", unit.name}});
  std::map<std::size_t, ResidentGrams> resident;
  const auto run = [&](auto zero) {
    return capture_grams<decltype(zero)>(model, config, prepared.sample, request, team, progress,
                                         unit_run.profile, &state, summed,
                                         needs_whole_grams(job) ? nullptr : &resident);
  };
  std::vector<StreamGrams> grams = prepared.input.dtype == Dtype::float64 ? run(0.0) : run(0.0F);
  for (std::size_t s = 0; s < grams.size(); ++s) evidence.streams[s].grams = std::move(grams[s]);
  for (auto& [s, stays] : resident) {
    evidence.streams[s].grams.reset();
    evidence.streams[s].resident = std::move(stays);
  }
  if (!attention) return;
  const std::int64_t tokens = evidence.streams.front().grams->fit.tokens;
  AttentionMoments moments = finish_attention(*sums, model, team, tokens);
  evidence.attention = GramAttention{tokens,
                                     moments.layers,
                                     moments.heads,
                                     moments.head_size,
                                     std::move(moments.scale),
                                     std::move(moments.query),
                                     std::move(moments.output)};
}

}  // namespace

void check_model(const Job& job, const Unit& unit, const GridShape& grid) {
  check_model_sizes(job, prepare(job, unit).input.config, grid);
}

UnitEvidence run_model(const UnitRun& run) {
  const Job& job = run.job;
  const Unit& unit = run.unit;
  const ProcessLayout& team = run.team;
  const Log& log = run.log;
  Prepared prepared;
  {
    const Profile::Phase phase = run.profile.enter("read");
    agree(team.group(), [&] { prepared = prepare(job, unit); });
  }
  tell(prepared.sample, log);
  if (prepared.input.checkpoint)
    for (const std::string& warning : prepared.input.checkpoint->warnings()) log.warning(warning);
  UnitEvidence evidence;
  for (const Stream stream : job.predict.streams) evidence.streams.push_back(announce(job, prepared, stream));
  capture(run, prepared, evidence);
  if (team.gpu()) release_unused(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*team.gpu())));
  if (job.overlap.enabled) {
    const Profile::Phase phase = run.profile.enter("overlap");
    evidence.overlap = compute_overlap(job.overlap, projections(job, prepared), team.group(), log, unit.name);
  }
  evidence.sample = std::move(prepared.sample);
  evidence.model_type = prepared.input.config.model_type;
  return evidence;
}

}  // namespace headspan
