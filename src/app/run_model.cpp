#include <algorithm>

#include "app/capture.h"
#include "app/gram_source.h"
#include "app/model_input.h"
#include "dist/agreement.h"
#include "dist/gpu.h"
#include "model/projections.h"

namespace headspan {
namespace {

CapturePoint capture_point(const std::string& name) {
  if (name == "proj") return CapturePoint::proj;
  return name == "normed" ? CapturePoint::normed : CapturePoint::roped;
}

/// The model of a unit and its tokens.
struct Prepared {
  ModelInput input;
  Sample sample;
};

/// Throws InputError for everything that is wrong with the unit but the values of its weights. Local.
Prepared prepare(const Job& job, const Unit& unit) {
  Prepared prepared{open_model(job.model, unit.path, unit.random, saves_attention(job)), {}};
  const Dtype dtype = prepared.input.dtype;
  if (job.predict.precision == "bfloat16" && dtype != Dtype::bfloat16 && dtype != Dtype::float16)
    throw InputError("", "predict.precision", "bfloat16", "is coarser than a forward in " + dtype_name(dtype),
                     "set model.dtype to bfloat16 or float16, or choose float64, float32 or split");
  prepared.sample = take_sample(job.tokens, prepared.input.config, prepared.input.config_path);
  return prepared;
}

Projections projections(const Job& job, const Prepared& prepared) {
  const ModelInput& input = prepared.input;
  if (input.checkpoint) return {input.config, *input.checkpoint};
  return {input.config, static_cast<std::uint64_t>(job.model.seed), input.dtype};
}

/// All of a stream but its Grams.
StreamEvidence announce(const Job& job, const Prepared& prepared, const std::string& stream) {
  const std::string dtype = dtype_name(prepared.input.dtype);
  return {{stream, job.predict.capture, dtype, job.predict.precision, job.tokens.skip_first},
          stream_layout(prepared.input.config, stream_named(stream)),
          fit_rules(job, dtype, job.predict.precision),
          {}};
}

/// Whether Grams can grow on the GPUs beside the weights that lie there: the triangle, the rows that wait and
/// the panels, with copies of them in other types, take no more than both triangles, and 1 GiB (panels of
/// small Grams). Collective over the team's group.
bool grams_fit_gpu(const ModelConfig& config, const CaptureRequest& request, bool heldout, const Team& team) {
  double bytes = 1 << 30;
  for (const Stream stream : request.streams) {
    const auto columns = static_cast<double>(stream_layout(config, stream).columns());
    bytes += (heldout ? 2 : 1) * sizeof(double) * columns * columns / team.group().size();
  }
  // Ranks of a group that share GPUs: as if those of a node shared one.
  const bool shared = team.group().size() > 1 && !team.group_device().gpu();
  if (shared) bytes *= team.group().split_shared().size();
  int fits = 0;
  agree(team.group(), [&] { fits = static_cast<double>(free_gpu_memory(*team.gpu())) >= bytes; });
  return team.group().min(fits) != 0;
}

/// Fills in the Grams of the streams; the weights are in memory no longer than that.
void capture(const Job& job, const Unit& unit, const Prepared& prepared, const Team& team, RunClock& clock,
             const Log& log, Profile& profile, UnitEvidence& evidence) {
  const bool attention = saves_attention(job);
  const ModelConfig& config = prepared.input.config;
  const Transformer model = [&] {
    const Profile::Phase phase = profile.enter("load");
    return load_model(job.model, prepared.input, attention, team, log, unit.name);
  }();
  CaptureRequest request;
  std::vector<GramStream> saved;
  for (const StreamEvidence& stream : evidence.streams) {
    request.streams.push_back(stream_named(stream.origin.name));
    saved.push_back(gram_stream(stream.origin, stream.layout, prepared.sample.has_heldout()));
  }
  request.point = capture_point(job.predict.capture);
  request.precision = product_precision(job.predict.precision);
  request.skip_first = job.tokens.skip_first;
  request.batch_tokens = batch_tokens(job.run, prepared.sample, team);
  if (team.gpu() && grams_fit_gpu(config, request, prepared.sample.has_heldout(), team))
    request.device = model.device();
  else if (team.gpu())
    log.notice(unit.name + ": the Grams do not fit the memory of the GPUs; they are summed on the CPU");
  std::optional<AttentionSums> sums;
  if (attention) sums.emplace(config.layers, config.heads, config.kv_heads, config.head_size);
  AttentionSums* const summed = sums ? &*sums : nullptr;
  const UnitState state(job, unit, team, clock, log, saved, summed);
  Progress progress(log, "forward", "tokens", prepared.sample.total(), {{"unit", unit.name}});
  const auto run = [&](auto zero) {
    return capture_grams<decltype(zero)>(model, config, prepared.sample, request, team, progress, profile,
                                         &state, summed);
  };
  std::vector<StreamGrams> grams = prepared.input.dtype == Dtype::float64 ? run(0.0) : run(0.0F);
  for (std::size_t s = 0; s < grams.size(); ++s) evidence.streams[s].grams = std::move(grams[s]);
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

void check_model(const Job& job, const Unit& unit) { prepare(job, unit); }

UnitEvidence run_model(const Job& job, const Unit& unit, const Team& team, RunClock& clock, const Log& log,
                       Profile& profile) {
  Prepared prepared;
  {
    const Profile::Phase phase = profile.enter("read");
    agree(team.group(), [&] { prepared = prepare(job, unit); });
  }
  for (const std::string& notice : prepared.sample.notices) log.notice(notice);
  if (prepared.input.checkpoint)
    for (const std::string& warning : prepared.input.checkpoint->warnings()) log.warning(warning);
  UnitEvidence evidence;
  for (const std::string& name : job.predict.streams)
    evidence.streams.push_back(announce(job, prepared, name));
  capture(job, unit, prepared, team, clock, log, profile, evidence);
  if (job.overlap.enabled) {
    const Profile::Phase phase = profile.enter("overlap");
    evidence.overlap = compute_overlap(job.overlap, projections(job, prepared), team.group(), log, unit.name);
  }
  evidence.sample = std::move(prepared.sample);
  evidence.model_type = prepared.input.config.model_type;
  evidence.config_sha256 = prepared.input.config_sha256;
  return evidence;
}

}  // namespace headspan
