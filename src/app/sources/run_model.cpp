#include "app/sources/run_model.h"

#include <algorithm>

#include "app/capture/capture.h"
#include "app/job/job_rules.h"
#include "app/plan/job_sizes.h"
#include "app/plan/matrix_sizes.h"
#include "app/plan/passes.h"
#include "app/run/model_input.h"
#include "app/run/reference_model.h"
#include "app/sources/reference_grams.h"
#include "base/process/memory.h"
#include "device/device_eigenvalues.h"
#include "device/device_room.h"
#include "device/device_values.h"
#include "dist/comm/agreement.h"
#include "io/checkpoint/content_digest.h"
#include "model/weights/projections.h"

namespace headspan {
namespace {

/// The model of a unit, its tokens, and the reference if there is one.
struct Prepared {
  ModelInput input;
  Sample sample;
  std::optional<ModelInput> reference;
};

/// Reads everything about the unit except the values of its weights. Throws InputError if any of it is wrong.
/// Local.
Prepared prepare(const Job& job, const Unit& unit) {
  Prepared prepared{
      open_model(job.model, unit.path, unit.random, saves_attention(job.predict, job.output)), {}, {}};
  check_references(job.predict, most_heads(job.predict, prepared.input.config));
  if (job.attention.scores) check_attention_scores(prepared.input.config);
  const Dtype dtype = prepared.input.dtype;
  if (job.predict.precision == Precision::bfloat16 && dtype != Dtype::bfloat16 && dtype != Dtype::float16)
    throw InputError("", "predict.precision", "bfloat16", "is coarser than a forward in " + dtype_name(dtype),
                     "set model.dtype to bfloat16 or float16, or choose float64, float32 or split");
  prepared.sample =
      take_sample(job.tokens, prepared.input.config, prepared.input.config_path, unit.model_name);
  if (!unit.reference.empty())
    prepared.reference = open_reference(job.model, unit.reference, prepared.input, prepared.sample);
  if (!job.cross.grams.empty())
    check_reference_grams(job.cross.grams, job.predict, job.tokens, unit, *prepared.reference,
                          prepared.sample.has_heldout());
  return prepared;
}

Projections projections(const Job::Model& rule, const ModelInput& input) {
  if (input.checkpoint) return {input.config, *input.checkpoint};
  return {input.config, static_cast<std::uint64_t>(rule.seed), input.dtype};
}

/// Returns whether a Gram is needed whole in host memory.
bool needs_whole_grams(const Job& job) {
  const Job::Ceiling& ceiling = job.ceiling;
  return job.output.save_gram || !job.predict.similarity.empty() || !job.predict.cross.empty() ||
         (ceiling.enabled && ceiling.scope != CeilingScope::layer);
}

/// Returns the streams of the unit, then the pairs of streams, then the streams with those of the reference,
/// without their Grams.
std::vector<StreamEvidence> stream_evidence(const Job& job, const Prepared& prepared) {
  const ModelConfig& config = prepared.input.config;
  const Dtype dtype = prepared.input.dtype;
  const Precision precision = job.predict.product(dtype);
  const FitRules rules = fit_rules(job.predict.mode, dtype, precision);
  StreamOrigin origin{{}, job.predict.capture, dtype, precision, job.tokens.skip_first};
  std::vector<StreamEvidence> streams;
  for (const Stream stream : job.predict.streams) {
    origin.stream = stream;
    streams.push_back({origin, stream_layout(config, stream), rules});
  }
  for (const StreamPair& pair : job.predict.cross) {
    origin.stream = pair.source;
    origin.target = pair.target;
    streams.push_back({origin, pair_layout(config, pair), rules});
  }
  if (!prepared.reference) return streams;
  origin.reference = ReferenceSide::target;
  for (const Stream stream : job.predict.streams) {
    origin.stream = stream;
    origin.target = stream;
    streams.push_back({origin, reference_layout(config, prepared.reference->config, stream), rules});
  }
  return streams;
}

/// Returns the index of the stream of the evidence that a captured Gram is of: with a reference the streams
/// of both models, which come last there, are captured in place of the unit's.
std::size_t stream_of_gram(std::size_t gram, const Job::Predict& predict, bool has_reference) {
  const std::size_t own = predict.streams.size();
  return has_reference && gram < own ? own + predict.cross.size() + gram : gram;
}

/// Returns what a capture sums, in its order.
std::vector<GramStream> captured_streams(const Job::Predict& predict, bool has_reference,
                                         const std::vector<StreamEvidence>& streams, bool heldout) {
  std::vector<GramStream> captured;
  for (std::size_t g = 0; g < predict.streams.size() + predict.cross.size(); ++g) {
    const StreamEvidence& stream = streams[stream_of_gram(g, predict, has_reference)];
    captured.push_back(gram_stream(stream.origin, stream.layout, heldout));
  }
  return captured;
}

/// Chooses whether the Grams are summed on the GPUs, and in which passes. Returns the names of the passes.
/// Logs a notice if the Grams do not fit the GPUs, or not in one pass.
std::vector<std::string> choose_passes(const UnitRun& run, const Prepared& prepared,
                                       CaptureRequest& request) {
  const ProcessLayout& processes = run.processes;
  if (!processes.gpu()) return {};
  const ModelConfig* const reference = prepared.reference ? &prepared.reference->config : nullptr;
  if (reference != nullptr && reference->head_size != prepared.input.config.head_size) {
    run.log.notice(run.unit.name +
                   ": its heads and those of cross.model differ in size: the Grams are summed on the CPU");
    return {};
  }
  std::int64_t longest = 0;
  for (const Sequence& sequence : prepared.sample.sequences) longest = std::max(longest, sequence.length);
  const PassSetting setting{run.job,
                            prepared.input.config,
                            prepared.input.dtype,
                            prepared.sample.has_heldout(),
                            std::max(longest, request.batch_tokens),
                            {processes.group().size(), processes.tensor().size(), processes.grid().shape()},
                            reference};
  request.passes = plan_passes(setting, processes.gpu_memory());
  request.on_device = !request.passes.empty();
  std::vector<std::string> names;
  for (const DeviceShare& pass : request.passes) names.push_back(pass_name(setting, pass));
  const std::string notice = run.unit.name + ": the Grams do not fit the memory of the GPUs";
  if (names.empty()) run.log.notice(notice + "; they are summed on the CPU");
  if (names.size() > 1)
    run.log.notice(notice + " at once; they are summed in " + std::to_string(names.size()) +
                   " passes over the tokens");
  return names;
}

/// Sets the digests of `evidence` and returns what a saved state must agree with: the config, the weights in
/// these very files, and the tokens that are run. The same on every rank. Collective over the group.
std::string identify(const Job& job, const Prepared& prepared, const Comm& group, UnitEvidence& evidence) {
  std::string contents;
  agree(group, [&] {
    if (!group.is_root()) return;
    contents = "config.json " + prepared.input.config_sha256 + "\n";
    if (const auto& checkpoint = prepared.input.checkpoint) {
      evidence.weights_digest = weights_digest(*checkpoint);
      contents += "weights " + evidence.weights_digest + " " + change_times(checkpoint->files()) + "\n";
    }
    if (const auto& reference = prepared.reference) {
      const Checkpoint& checkpoint = *reference->checkpoint;
      evidence.reference_weights_digest = weights_digest(checkpoint);
      contents += "reference config.json " + reference->config_sha256 + "\nreference weights " +
                  evidence.reference_weights_digest + " " + change_times(checkpoint.files()) +
                  "\nreference Gram " + (job.cross.grams.empty() ? "summed" : "read") + "\n";
    }
    contents += "tokens " + sample_digest(prepared.sample) + "\n";
    contents += chosen_products(job.predict, prepared.input.dtype);
  });
  evidence.config_sha256 = prepared.input.config_sha256;
  evidence.weights_digest = group.broadcast(evidence.weights_digest, 0);
  if (prepared.reference) evidence.reference_config_sha256 = prepared.reference->config_sha256;
  evidence.reference_weights_digest = group.broadcast(evidence.reference_weights_digest, 0);
  return group.broadcast(contents, 0);
}

/// Runs the forward passes of a request and returns the Grams. Collective over the group.
std::vector<StreamGrams> run_forwards(const UnitRun& run, const Transformer& model, const Prepared& prepared,
                                      const CaptureRequest& request) {
  std::int64_t tokens = request.passes.empty() ? prepared.sample.total() : 0;
  for (const DeviceShare& pass : request.passes) tokens += tokens_of(pass, prepared.sample);
  Progress progress(run.log, "forward", "tokens", tokens, {{"unit", run.unit.name}});
  const auto capture = [&](auto zero) {
    return capture_grams<decltype(zero)>(model, prepared.sample, request, run.processes, progress,
                                         run.profile);
  };
  return prepared.input.dtype == Dtype::float64 ? capture(0.0) : capture(0.0F);
}

/// Fills in the Grams of the unit's streams, which are parts of those of both models.
void copy_own_streams(std::vector<StreamEvidence>& streams) {
  for (StreamEvidence& own : streams) {
    if (own.origin.target) continue;
    const auto both = std::find_if(streams.begin(), streams.end(), [&](const StreamEvidence& stream) {
      return stream.origin.reference == ReferenceSide::target && stream.origin.stream == own.origin.stream;
    });
    own.grams = StreamGrams{first_stream(both->grams->fit, both->layout), {}};
    if (both->grams->heldout) own.grams->heldout = first_stream(*both->grams->heldout, both->layout);
  }
}

/// Fills in the captured Grams, and the moments of attention if they are saved. Loads the weights, and
/// frees them on return.
void capture(const UnitRun& run, const Prepared& prepared, UnitEvidence& evidence) {
  const Job& job = run.job;
  const ModelConfig& config = prepared.input.config;
  const auto load = [&](const ModelInput& input, bool logits, const std::string& name) {
    const Profile::Phase phase = run.profile.enter("load");
    return load_model(job.model, input, logits, run.processes, run.log, name);
  };
  const Transformer model = load(prepared.input, saves_attention(job.predict, job.output), run.unit.name);
  std::optional<Transformer> reference;
  if (prepared.reference) reference = load(*prepared.reference, false, run.unit.reference_name);
  CaptureRequest request{job.predict.streams, job.predict.capture, job.predict.product(prepared.input.dtype),
                         batch_tokens(job.run, prepared.sample, run.processes), job.tokens.skip_first};
  request.pairs = job.predict.cross;
  request.reference = reference ? &*reference : nullptr;
  request.sums_reference = job.cross.grams.empty();
  const std::vector<std::string> passes = choose_passes(run, prepared, request);
  std::optional<AttentionSums> sums;
  if (saves_attention(job.predict, job.output))
    request.attention = &sums.emplace(config.layers, config.heads, config.kv_heads, config.head_size);
  const UnitState state(
      run,
      captured_streams(job.predict, reference.has_value(), evidence.streams, prepared.sample.has_heldout()),
      identify(job, prepared, run.processes.group(), evidence), request.attention, passes);
  request.state = &state;
  std::map<std::size_t, ResidentGrams> resident;
  if (!needs_whole_grams(job) && !reference) request.resident = &resident;
  std::vector<StreamGrams> grams = run_forwards(run, model, prepared, request);
  if (job.attention.scores) {
    const Profile::Phase phase = run.profile.enter("scores");
    evidence.scores =
        measure_attention(model, prepared.sample, job.tokens.seed, request.batch_tokens, run.processes);
  }
  const std::int64_t tokens = grams.front().fit.tokens;
  for (std::size_t g = 0; g < grams.size(); ++g) {
    StreamEvidence& stream = evidence.streams[stream_of_gram(g, job.predict, reference.has_value())];
    if (const auto found = resident.find(g); found != resident.end())
      stream.resident = std::move(found->second);
    else
      stream.grams = std::move(grams[g]);
  }
  if (!sums) return;
  AttentionMoments moments = finish_attention(*sums, model, run.processes, tokens);
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
  const Prepared prepared = prepare(job, unit);
  check_model_sizes(job, prepared.input.config, grid,
                    prepared.reference ? &prepared.reference->config : nullptr);
}

namespace {

/// Returns how the overlap of projections with up to `columns` columns is computed: on the GPUs if all of
/// them have room. Collective over the group.
OverlapShares overlap_shares(const UnitRun& run, std::int64_t columns) {
  const std::optional<int> gpu = run.processes.gpu();
  if (!gpu) return {};
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(*gpu));
  if (have_room(run.processes.group(), device, device_eigenvalue_bytes(columns)))
    return {kLargeProjection, device_eigenvalues(device)};
  run.log.notice(
      run.unit.name +
      ": the GPUs have too little memory for eigenvalues of weights; they are computed on the CPU");
  return {};
}

}  // namespace

UnitEvidence run_model(const UnitRun& run) {
  const Job& job = run.job;
  const Comm& group = run.processes.group();
  Prepared prepared;
  {
    const Profile::Phase phase = run.profile.enter("read");
    agree(group, [&] { prepared = prepare(job, run.unit); });
  }
  tell(prepared.sample, run.log);
  if (prepared.input.checkpoint)
    for (const std::string& warning : prepared.input.checkpoint->warnings()) run.log.warning(warning);
  UnitEvidence evidence;
  evidence.streams = stream_evidence(job, prepared);
  capture(run, prepared, evidence);
  return_freed_memory();
  if (prepared.reference) {
    const Profile::Phase phase = run.profile.enter("gram");
    copy_own_streams(evidence.streams);
    if (!job.cross.grams.empty()) read_reference_grams(job.cross.grams, run, evidence);
  }
  if (const auto gpu = run.processes.gpu())
    release_unused(at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(*gpu)));
  if (job.overlap.enabled) {
    const Profile::Phase phase = run.profile.enter("overlap");
    const Projections weights = projections(job.model, prepared.input);
    evidence.overlap = compute_overlap(job.overlap, weights, group, run.log, run.unit.name,
                                       overlap_shares(run, most_columns(job.overlap, weights)));
  }
  evidence.sample = std::move(prepared.sample);
  evidence.model_type = prepared.input.config.model_type;
  return evidence;
}

}  // namespace headspan
