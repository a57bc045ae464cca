#include "app/study/run_unit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <omp.h>

#include "app/capture/unit_state.h"
#include "app/run/output_lock.h"
#include "app/sources/gram_source.h"
#include "app/sources/run_attributes.h"
#include "app/sources/value_range.h"
#include "app/study/analysis.h"
#include "app/study/published.h"
#include "app/study/result_file.h"
#include "base/profile.h"
#include "base/progress.h"
#include "base/provenance.h"
#include "base/sha256.h"
#include "device/device_values.h"
#include "dist/comm/agreement.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

/// Once, for the first stream that it is true of: the others have as many tokens.
void warn_of_few_tokens(const Unit& unit, const std::vector<StreamResult>& results, std::int64_t references,
                        const Log& log) {
  for (const StreamResult& stream : results)
    for (std::int64_t count = 1; count <= references; ++count)
      if (stream.rules.too_few(count * stream.layout.head_size))
        return log.warning(unit.name + ": " + std::to_string(stream.rules.tokens) +
                           " fit tokens are too few for " + std::to_string(count) +
                           " references and more (p >= n - 1): those R2 are NaN with status 4");
}

/// Where the statistics of a stream are computed: on the GPUs where these hold what it takes, for which Grams
/// that lie there make room where they must. Collective.
std::optional<at::Device> analysis_device(RegressionData& data, std::optional<ResidentGrams>& resident,
                                          const AnalysisRequest& request, const std::string& stream,
                                          const ProcessLayout& team, const Log& log) {
  if (!team.gpu()) return {};
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(*team.gpu()));
  if (fits_device(data, request, device)) return device;
  if (resident) {
    resident->copy_all_to_host(data);
    resident.reset();
    release_unused(device);
    if (fits_device(data, request, device)) return device;
  }
  log.notice("stream " + stream +
             ": the GPUs have too little memory for its statistics; they are computed on the CPU");
  return {};
}

/// What the statistics of a stream start from.
RegressionData take_data(const std::string& path, StreamEvidence& stream,
                         std::optional<ResidentGrams>& resident) {
  if (!resident)
    return regression_data(stream.layout, stream.rules, std::move(stream.grams->fit),
                           std::move(stream.grams->heldout));
  RegressionData data = resident->take_data(stream.layout, stream.rules);
  const auto check = [&](std::int64_t tokens, const std::vector<double>& squares) {
    check_value_range(data.comm(), path, stream.origin, stream.layout, stream.rules, tokens, data.fit.mean,
                      squares);
  };
  check(data.rules.tokens, data.sst);
  if (data.heldout) check(data.rules.tokens_heldout, data.sst_heldout);
  return data;
}

/// How far below 0 an eigenvalue of a head's covariance can be: rounding, that of coordinates that do not
/// vary and of squares too small to be summed too. mean, spectrum: [d].
double most_below_zero(const FitRules& rules, const double* mean, const double* spectrum, std::int64_t d) {
  constexpr double kRounding = 1e-3;  // of the largest eigenvalue, where products were formed in float32
  double least = 0;
  for (std::int64_t i = 0; i < d; ++i) {
    const double error = 64 * std::numeric_limits<double>::epsilon() * mean[i];
    least += 2 * std::max(error * error, rules.smallest_square());  // n / (n - 1) is at most 2
  }
  return kRounding * std::abs(spectrum[0]) + least;
}

/// Refuses a Gram that its spectra show to be that of no data: below 0 beyond rounding. Collective.
void check_definite(const std::string& path, Unit::Kind kind, const StreamResult& result, const Comm& comm) {
  const HeadSummary& heads = result.heads;
  const std::int64_t d = result.layout.head_size;
  const char* remedy = kind == Unit::Kind::grams     ? "the file is damaged"
                       : result.rules.double_product ? "the machine or headspan is at fault: run it again"
                                                     : "set predict.precision = float64";
  agree(comm, [&] {
    for (std::int64_t h = 0; h < heads.targets.count; ++h) {
      const double* spectrum = heads.spectrum.data() + h * d;
      if (!(spectrum[d - 1] < -most_below_zero(result.rules, heads.mean.data() + h * d, spectrum, d)))
        continue;
      const auto head = static_cast<std::size_t>(heads.targets.first + h);
      throw InputError(path,
                       result.origin.name() + ", layer " + std::to_string(result.layout.layer[head]) +
                           ", head " + std::to_string(result.layout.head[head]),
                       "", "its Gram is not positive semidefinite", remedy);
    }
  });
}

StreamResult analyse_stream(const Job& job, const Unit& unit, StreamEvidence& stream, AnalysisRequest request,
                            const ProcessLayout& team, const Log& log, Profile& profile) {
  const Profile::Phase phase = profile.enter("pairs");
  const std::string& path = source_path(job, unit);
  std::optional<ResidentGrams> resident = std::exchange(stream.resident, std::nullopt);
  RegressionData data = take_data(path, stream, resident);
  request.device = analysis_device(data, resident, request, stream.origin.name(), team, log);
  StreamResult result = analyse(std::move(data), stream.origin, request, profile, std::move(resident));
  check_definite(path, unit.kind, result, team.group());
  return result;
}

/// The streams in the order in which they are analysed: those first that others wait for memory of GPUs for.
std::vector<std::size_t> order_of(const std::vector<StreamEvidence>& streams) {
  std::vector<std::size_t> order(streams.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(), order.end(),
                        [&](std::size_t s) { return streams[s].resident.has_value(); });
  return order;
}

AnalysisRequest analysis_request(const Job& job) {
  const std::vector<SelectionRule>& rules = job.predict.selection;
  const auto selects = [&](SelectionRule rule) { return std::count(rules.begin(), rules.end(), rule) > 0; };
  return {job.predict.references,
          job.predict.pool,
          selects(SelectionRule::pairwise),
          selects(SelectionRule::forward),
          job.ceiling.enabled && job.ceiling.scope != CeilingScope::causal,
          job.ceiling.enabled && job.ceiling.scope != CeilingScope::layer};
}

std::vector<StreamResult> analyse_all(const Job& job, const Unit& unit, UnitEvidence& evidence,
                                      const ProcessLayout& team, const Log& log, Profile& profile) {
  const AnalysisRequest request = analysis_request(job);
  std::vector<StreamResult> results(evidence.streams.size());
  Progress progress(log, "predict", "streams", static_cast<std::int64_t>(evidence.streams.size()),
                    {{"unit", unit.name}});
  for (const std::size_t s : order_of(evidence.streams)) {
    results[s] = analyse_stream(job, unit, evidence.streams[s], request, team, log, profile);
    progress.advance(1);
  }
  warn_of_few_tokens(unit, results, request.references, log);
  return results;
}

void publish_grams(const Unit& unit, const Publication& publication, const NetcdfAttributes& attributes,
                   const UnitEvidence& evidence, const ProcessLayout& team) {
  publish(
      team.group(), publication,
      [&](const std::string& path) {
        H5File file = H5File::create(team.group(), path);
        for (const auto& [name, value] : attributes) file.write_attribute("/", name, value);
        for (const StreamEvidence& stream : evidence.streams) {
          const auto part = [](const HeadGram& gram) {
            return GramPart{gram.tokens, gram.mean, &gram.matrix};
          };
          std::optional<GramPart> heldout;
          if (stream.grams->heldout) heldout = part(*stream.grams->heldout);
          write_gram(file, gram_stream(stream.origin, stream.layout, heldout.has_value()),
                     part(stream.grams->fit), heldout);
        }
        if (evidence.attention) write_attention(file, team.group(), *evidence.attention);
        file.close();
      },
      [&](const std::string& path) {
        const H5File file = H5File::open(path);
        if (read_gram_streams(file).size() != evidence.streams.size() ||
            read_attention_sizes(file).has_value() != evidence.attention.has_value())
          throw Error(path + ": streams of " + unit.name + " are missing after writing");
      });
}

}  // namespace

void run_unit(const Job& job, const Unit& unit, const ProcessLayout& team, RunClock& clock, const Log& log) {
  const std::string id = team.group().broadcast(job_id(), 0);
  const std::unique_ptr<LockFile> lock = take_lock(unit.result_path(job), id, team.group(), log);
  bool published = false;  // by another run, since this one was planned
  agree(team.group(), [&] {
    std::vector<std::string> known;  // told when the study was planned
    if (team.group().is_root()) published = is_published(job, unit, known);
  });
  if (team.group().max(published ? 1 : 0) == 1) return log.event("published before", {{"unit", unit.name}});
  Profile profile;
  UnitEvidence evidence = gather_evidence({job, unit, team, clock, log, profile, lock.get()});
  ResultHeader header{run_attributes(job, unit, team, evidence), evidence.sample.sequences,
                      evidence.sample.heldout, job.predict.pool, job.predict.references};
  Publication publication{unit.result_path(job), id, sha256_hex(unit_identity(job, unit)), lock.get()};
  if (job.output.save_gram) {
    const Profile::Phase phase = profile.enter("save_gram");
    Publication grams = publication;
    grams.path = unit.gram_path(job);
    publish_grams(unit, grams, header.attributes, evidence, team);
    evidence.attention.reset();
  }
  const std::vector<StreamResult> results = analyse_all(job, unit, evidence, team, log, profile);
  {
    const Profile::Phase phase = profile.enter("publish");
    publish(
        team.group(), publication,
        [&](const std::string& path) { write_result(team.group(), path, header, results, evidence.overlap); },
        [&](const std::string& path) { verify_result(path, results); });
  }
  agree(team.group(), [&] {
    if (team.group().is_root()) remove_state(job, unit);
  });
  log.event("published", {{"unit", unit.name}, {"file", publication.path}});
  LogFields seconds = profile_fields(profile);
  seconds.insert(seconds.begin(), {"unit", unit.name});
  log.event("seconds", seconds);
}

}  // namespace headspan
