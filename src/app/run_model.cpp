#include <algorithm>

#include "app/capture.h"
#include "app/gram_source.h"
#include "base/sha256.h"
#include "model/projections.h"
#include "model/weight_loader.h"

namespace headspan {
namespace {

CapturePoint capture_point(const std::string& name) {
  if (name == "proj") return CapturePoint::proj;
  return name == "normed" ? CapturePoint::normed : CapturePoint::roped;
}

/// What the captures run: every layer, and of the last one only its projections.
Extent needed(const ModelConfig& config) { return {config.layers, false}; }

/// The model of a unit and what else its checkpoint says, before the weights are read.
struct Prepared {
  ModelConfig config;
  std::optional<Checkpoint> checkpoint;  // of pretrained weights
  Dtype dtype = Dtype::float32;
  Sample sample;
  std::string config_sha256;
};

/// Throws InputError for everything that is wrong with the unit but the values of its weights. Local.
Prepared prepare(const Job& job, const Unit& unit) {
  Prepared prepared;
  if (!unit.random) prepared.checkpoint = Checkpoint::open(unit.path);
  const std::string config_path = unit.path + "/config.json";
  prepared.config = read_model_config(config_path);
  prepared.config_sha256 = sha256_file(config_path);
  if (prepared.checkpoint) check_weights(*prepared.checkpoint, prepared.config, needed(prepared.config));
  prepared.dtype =
      forward_dtype(job.model.dtype, prepared.config, prepared.checkpoint ? &*prepared.checkpoint : nullptr);
  if (job.predict.precision == "bfloat16" && prepared.dtype != Dtype::bfloat16 &&
      prepared.dtype != Dtype::float16)
    throw InputError("", "predict.precision", "bfloat16",
                     "is coarser than a forward in " + dtype_name(prepared.dtype),
                     "set model.dtype to bfloat16 or float16, or choose float64, float32 or split");
  prepared.sample = take_sample(job.tokens, prepared.config, config_path);
  return prepared;
}

std::int64_t batch_tokens(const Job& job, const Sample& sample, std::int64_t rows) {
  const std::int64_t share = (sample.total() + rows - 1) / rows;
  return job.run.batch_tokens.value_or(
      std::max<std::int64_t>(1, std::min(CaptureRequest{}.batch_tokens, share)));
}

Transformer load(const Job& job, const Unit& unit, const Prepared& prepared, const Team& team,
                 const Log& log) {
  const double start = Progress::steady_seconds();
  const Extent extent = needed(prepared.config);
  std::optional<Transformer> model;
  agree(team.group(), [&] {
    model = unit.random ? Transformer::random(prepared.config, static_cast<std::uint64_t>(job.model.seed),
                                              prepared.dtype, extent, team.tensor())
                        : Transformer::load(prepared.config, *prepared.checkpoint, prepared.dtype, extent,
                                            team.tensor(), team.data());
  });
  log.event("loaded", {{"unit", unit.name},
                       {"layers", std::to_string(prepared.config.layers)},
                       {"dtype", dtype_name(prepared.dtype)},
                       {"seconds", std::to_string(Progress::steady_seconds() - start)}});
  return std::move(*model);
}

Projections projections(const Job& job, const Prepared& prepared) {
  if (prepared.checkpoint) return {prepared.config, *prepared.checkpoint};
  return {prepared.config, static_cast<std::uint64_t>(job.model.seed), prepared.dtype};
}

/// All of a stream but its Grams.
StreamEvidence announce(const Job& job, const Prepared& prepared, const std::string& stream) {
  const std::string dtype = dtype_name(prepared.dtype);
  return {{stream, job.predict.capture, dtype, job.predict.precision, job.tokens.skip_first},
          stream_layout(prepared.config, stream_named(stream)),
          fit_rules(job, dtype, job.predict.precision),
          {}};
}

/// Fills in the Grams of the streams; the weights are in memory no longer than that.
void capture(const Job& job, const Unit& unit, const Prepared& prepared, const Team& team, RunClock& clock,
             const Log& log, UnitEvidence& evidence) {
  const Transformer model = load(job, unit, prepared, team, log);
  CaptureRequest request;
  std::vector<GramStream> saved;
  for (const StreamEvidence& stream : evidence.streams) {
    request.streams.push_back(stream_named(stream.origin.name));
    saved.push_back(gram_stream(stream.origin, stream.layout, prepared.sample.has_heldout()));
  }
  request.point = capture_point(job.predict.capture);
  request.precision = product_precision(job.predict.precision);
  request.skip_first = job.tokens.skip_first;
  request.batch_tokens = batch_tokens(job, prepared.sample, team.group().size() / team.tensor().size());
  const UnitState state(job, unit, team, clock, log, saved);
  Progress progress(log, "forward", "tokens", prepared.sample.total(), {{"unit", unit.name}});
  const auto run = [&](auto zero) {
    return capture_grams<decltype(zero)>(model, prepared.config, prepared.sample, request, team, progress,
                                         &state);
  };
  std::vector<StreamGrams> grams = prepared.dtype == Dtype::float64 ? run(0.0) : run(0.0F);
  for (std::size_t s = 0; s < grams.size(); ++s) evidence.streams[s].grams = std::move(grams[s]);
}

}  // namespace

void check_model(const Job& job, const Unit& unit) { prepare(job, unit); }

UnitEvidence run_model(const Job& job, const Unit& unit, const Team& team, RunClock& clock, const Log& log) {
  Prepared prepared;
  agree(team.group(), [&] { prepared = prepare(job, unit); });
  for (const std::string& notice : prepared.sample.notices) log.notice(notice);
  if (prepared.checkpoint)
    for (const std::string& warning : prepared.checkpoint->warnings()) log.warning(warning);
  UnitEvidence evidence;
  for (const std::string& name : job.predict.streams)
    evidence.streams.push_back(announce(job, prepared, name));
  capture(job, unit, prepared, team, clock, log, evidence);
  if (job.overlap.enabled)
    evidence.overlap = compute_overlap(job.overlap, projections(job, prepared), team.group(), log, unit.name);
  evidence.sample = std::move(prepared.sample);
  evidence.model_type = prepared.config.model_type;
  evidence.config_sha256 = prepared.config_sha256;
  return evidence;
}

}  // namespace headspan
