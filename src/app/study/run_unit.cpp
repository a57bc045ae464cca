#include "app/study/run_unit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include <omp.h>

#include "app/capture/unit_state.h"
#include "app/run/output_lock.h"
#include "app/run/write_target.h"
#include "app/sources/gram_source.h"
#include "app/sources/run_attributes.h"
#include "app/sources/value_range.h"
#include "app/study/analysis.h"
#include "app/study/published.h"
#include "app/study/result_file.h"
#include "base/checked.h"
#include "base/profile.h"
#include "base/progress.h"
#include "base/provenance.h"
#include "base/sha256.h"
#include "device/device_values.h"
#include "dist/comm/agreement.h"
#include "io/outputs/publish.h"

namespace headspan {
namespace {

/// Logs a warning if the fit tokens are too few for some number of references. One is enough: all streams
/// have the same tokens.
void warn_of_few_tokens(const UnitRun& run, const StudyResults& results) {
  for (const StreamResult& stream : results.streams)
    for (std::int64_t count = 1; count <= run.job.predict.references; ++count)
      if (stream.rules.too_few(count * stream.layout.head_size))
        return run.log.warning(run.unit.name + ": " + std::to_string(stream.rules.tokens) +
                               " fit tokens are too few for " + std::to_string(count) +
                               " references and more (p >= n - 1): those R2 are NaN with status 4");
}

/// Returns this rank's GPU if the statistics of a stream fit there on all ranks; else none. If they do not
/// fit, the stream's resident Grams are moved to the host first. Collective over the group.
std::optional<at::Device> analysis_device(const UnitRun& run, const std::string& stream,
                                          const AnalysisRequest& request, RegressionData& data,
                                          std::optional<ResidentGrams>& resident) {
  if (!run.processes.gpu()) return {};
  const at::Device device(at::kCUDA, static_cast<c10::DeviceIndex>(*run.processes.gpu()));
  if (fits_device(data, request, device)) return device;
  if (resident) {
    resident->copy_all_to_host(data);
    resident.reset();
    release_unused(device);
    if (fits_device(data, request, device)) return device;
  }
  run.log.notice("stream " + stream +
                 ": the GPUs have too little memory for its statistics; they are computed on the CPU");
  return {};
}

/// Moves the Grams out of a stream. Checks the values of Grams on GPUs, which were not checked before.
RegressionData take_data(const std::string& path, StreamEvidence& stream,
                         std::optional<ResidentGrams>& resident) {
  if (!resident)
    return regression_data(stream.layout, stream.rules, std::move(stream.grams->fit),
                           std::move(stream.grams->heldout));
  RegressionData data = resident->take_data(stream.layout, stream.rules);
  const auto check = [&](std::int64_t tokens, const std::vector<double>& squares) {
    check_value_range(path, stream, data.comm(), tokens, data.fit.mean, squares);
  };
  check(data.rules.tokens, data.sst);
  if (data.heldout) check(data.rules.tokens_heldout, data.sst_heldout);
  return data;
}

/// Returns how far below 0 rounding can move an eigenvalue of a head's covariance: the rounding of products,
/// of coordinates that do not vary, and of squares too small to be summed. mean, spectrum: [d].
double rounding_below_zero(const FitRules& rules, const double* mean, const double* spectrum,
                           std::int64_t d) {
  constexpr double kRounding = 1e-3;  // of the largest eigenvalue, for products formed in float32
  double constant = 0;
  for (std::int64_t i = 0; i < d; ++i) {
    const double error = 64 * std::numeric_limits<double>::epsilon() * mean[i];
    constant += 2 * std::max(error * error, rules.smallest_square());  // n / (n - 1) is at most 2
  }
  return kRounding * std::abs(spectrum[0]) + constant;
}

/// Throws AgreedError if an eigenvalue of a head is below 0 by more than rounding: no data have such a Gram.
/// Collective over the group.
void check_definite(const UnitRun& run, const StreamResult& result) {
  const HeadSummary& heads = result.heads;
  const std::int64_t d = result.layout.head_size;
  const char* remedy = run.unit.kind == Unit::Kind::grams ? "the file is damaged"
                       : result.rules.double_product ? "the machine or headspan is at fault: run it again"
                                                     : "set predict.precision = float64";
  agree(run.processes.group(), [&] {
    for (std::int64_t h = 0; h < heads.targets.count; ++h) {
      const double *spectrum = heads.spectrum.data() + h * d, *mean = heads.mean.data() + h * d;
      if (!(spectrum[d - 1] < -rounding_below_zero(result.rules, mean, spectrum, d))) continue;
      const auto head = static_cast<std::size_t>(heads.targets.first + h);
      throw InputError(run.unit.path,
                       result.origin.name() + ", layer " + std::to_string(result.layout.layer[head]) +
                           ", head " + std::to_string(result.layout.head[head]),
                       "", "its Gram is not positive semidefinite", remedy);
    }
  });
}

/// Adds the tables of a stream, or of two, to the results. Collective over the group.
void analyse_stream(const UnitRun& run, AnalysisRequest request, StreamEvidence& stream,
                    StudyResults& results) {
  const Profile::Phase phase = run.profile.enter("pairs");
  std::optional<ResidentGrams> resident = std::exchange(stream.resident, std::nullopt);
  RegressionData data = take_data(run.unit.path, stream, resident);
  request.device = analysis_device(run, stream.origin.name(), request, data, resident);
  if (stream.origin.target) {
    HS_ASSERT(!resident);
    results.cross.push_back(analyse_cross(data, stream.origin, request, run.profile));
    if (stream.origin.reference == ReferenceSide::none) return;
    data.layout = reversed(data.layout);
    StreamOrigin back = stream.origin;
    back.reference = ReferenceSide::source;
    results.cross.push_back(analyse_cross(data, back, request, run.profile));
    return;
  }
  results.streams.push_back(
      analyse(std::move(data), stream.origin, request, run.profile, std::move(resident)));
  check_definite(run, results.streams.back());
}

/// Returns the order in which streams are analysed: those with resident Grams first, which frees GPU memory
/// for the others.
std::vector<std::size_t> analysis_order(const std::vector<StreamEvidence>& streams) {
  std::vector<std::size_t> order(streams.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_partition(order.begin(), order.end(),
                        [&](std::size_t s) { return streams[s].resident.has_value(); });
  return order;
}

AnalysisRequest analysis_request(const Job::Predict& predict, const Job::Ceiling& ceiling) {
  const std::vector<SelectionRule>& rules = predict.selection;
  const auto selects = [&](SelectionRule rule) { return std::count(rules.begin(), rules.end(), rule) > 0; };
  return {predict.references,
          predict.pool,
          selects(SelectionRule::pairwise),
          selects(SelectionRule::forward),
          ceiling.enabled && ceiling.scope != CeilingScope::causal,
          ceiling.enabled && ceiling.scope != CeilingScope::layer,
          predict.similarity};
}

StudyResults analyse_all(const UnitRun& run, UnitEvidence& evidence) {
  const AnalysisRequest request = analysis_request(run.job.predict, run.job.ceiling);
  StudyResults results;
  Progress progress(run.log, "predict", "streams", static_cast<std::int64_t>(evidence.streams.size()),
                    {{"unit", run.unit.name}});
  for (const std::size_t s : analysis_order(evidence.streams)) {
    analyse_stream(run, request, evidence.streams[s], results);
    progress.advance(1);
  }
  warn_of_few_tokens(run, results);
  return results;
}

void publish_grams(const UnitRun& run, const Publication& publication, const NetcdfAttributes& attributes,
                   const UnitEvidence& evidence) {
  const Comm& group = run.processes.group();
  const auto is_pair = [](const StreamEvidence& stream) { return stream.origin.target.has_value(); };
  const std::size_t count = evidence.streams.size() -
                            to_size(std::count_if(evidence.streams.begin(), evidence.streams.end(), is_pair));
  publish(
      group, publication,
      [&](const std::string& path) {
        H5File file = H5File::create(group, path);
        for (const auto& [name, value] : attributes) file.write_attribute("/", name, value);
        for (const StreamEvidence& stream : evidence.streams) {
          if (is_pair(stream)) continue;
          const auto part = [](const HeadGram& gram) {
            return GramPart{gram.tokens, gram.mean, &gram.matrix};
          };
          std::optional<GramPart> heldout;
          if (stream.grams->heldout) heldout = part(*stream.grams->heldout);
          write_gram(file, gram_stream(stream.origin, stream.layout, heldout.has_value()),
                     part(stream.grams->fit), heldout);
        }
        if (evidence.attention) write_attention(file, group, *evidence.attention);
        file.close();
      },
      [&](const std::string& path) {
        const H5File file = H5File::open(path);
        if (read_gram_streams(file).size() != count ||
            read_attention_sizes(file).has_value() != evidence.attention.has_value())
          throw Error(path + ": streams of " + run.unit.name + " are missing after writing");
      });
}

}  // namespace

void run_unit(const Job& job, const Unit& unit, const InputWatch& inputs, const ProcessLayout& processes,
              RunClock& clock, const Log& log) {
  const Comm& group = processes.group();
  const std::string id = group.broadcast(job_id(), 0);
  const std::unique_ptr<LockFile> lock = take_lock(unit.result_path(job.output.directory), id, group, log);
  bool published = false;  // by another run, since this one was planned
  agree(group, [&] {
    std::vector<std::string> notices;  // logged when the study was planned
    if (group.is_root()) published = is_published(job, unit, notices);
  });
  if (group.max(published ? 1 : 0) == 1) return log.event("published before", {{"unit", unit.name}});
  InputWatch of_unit = inputs;
  for (const std::string& folder : {unit.path, unit.reference}) of_unit.add(checkpoint_files(folder));
  Profile profile;
  const UnitRun run{job, unit, processes, clock, log, profile, lock.get(), of_unit};
  UnitEvidence evidence = gather_evidence(run);
  ResultHeader header{run_attributes(run, evidence), evidence.sample.sequences, evidence.sample.heldout,
                      job.predict.pool, job.predict.references};
  Publication publication{unit.result_path(job.output.directory), id, sha256_hex(unit_identity(job, unit)),
                          lock.get()};
  agree(group, [&] {
    if (group.is_root()) of_unit.check();
  });
  if (job.output.save_gram) {
    const Profile::Phase phase = profile.enter("save_gram");
    Publication grams = publication;
    grams.path = unit.gram_path(job.output.directory);
    publish_grams(run, grams, header.attributes, evidence);
    evidence.attention.reset();
  }
  const StudyResults results = analyse_all(run, evidence);
  {
    const Profile::Phase phase = profile.enter("publish");
    publish(
        group, publication,
        [&](const std::string& path) {
          write_result(group, path, header, results, evidence.overlap, evidence.scores);
        },
        [&](const std::string& path) { verify_result(path, results); });
  }
  agree(group, [&] {
    if (group.is_root()) remove_state(job, unit);
  });
  log.event("published", {{"unit", unit.name}, {"file", publication.path}});
  LogFields seconds = profile_fields(profile);
  seconds.insert(seconds.begin(), {"unit", unit.name});
  log.event("seconds", seconds);
}

}  // namespace headspan
