#include "app/compress/gram_calibration.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "app/job/job_rules.h"
#include "app/sources/merge_grams.h"
#include "app/sources/value_range.h"
#include "base/sha256.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/linear_algebra.h"
#include "io/checkpoint/content_digest.h"

namespace headspan {
namespace {

/// [grams] as calibration takes them: keys and values.
Job of_keys_and_values(const Job& job) {
  Job own = job;
  own.predict.streams = {Stream::k, Stream::v};
  return own;
}

void check_attention(const GramFiles& files, const std::string& path) {
  const GramStream& first = files.streams.front();
  if (value_of(stream_words(), first.name) == Stream::k &&
      value_of(capture_words(), first.capture) != CapturePoint::roped)
    throw InputError(path, "k capture", first.capture, "is not how a cache holds keys",
                     "give Grams of a study with predict.capture = roped");
  if (!files.lacks_attention.empty())
    throw InputError(files.lacks_attention, "attention", "",
                     "is missing: what attention does with keys and values",
                     "study the model with predict.streams of k and v, predict.capture = roped, "
                     "output.save_gram = true and output.overwrite = true");
}

/// The sizes of attention, from Grams of all KV heads of all layers.
ModelConfig sizes_of(const GramFiles& files, const std::string& path) {
  const GramAttention& attention = *files.attention;
  const GramStream& keys = files.streams.front();
  ModelConfig config;
  config.model_type = files.model_type;
  config.layers = attention.layers;
  config.hidden_size = keys.hidden_size;
  config.heads = attention.heads;
  config.kv_heads = keys.heads() / std::max<std::int64_t>(1, attention.layers);
  config.head_size = attention.head_size;
  bool whole = files.streams.size() == 2 && config.kv_heads > 0 && config.heads % config.kv_heads == 0;
  for (const GramStream& stream : files.streams) {
    whole =
        whole && stream.head_size == config.head_size && stream.heads() == config.layers * config.kv_heads;
    for (std::int64_t h = 0; whole && h < stream.heads(); ++h)
      whole = stream.layer[static_cast<std::size_t>(h)] == h / config.kv_heads &&
              stream.head[static_cast<std::size_t>(h)] == h % config.kv_heads;
  }
  if (!whole)
    throw InputError(path, "attention", "", "does not go with the heads of k and v in the file",
                     "the file is damaged");
  return config;
}

/// Returns in what the Grams may be of other weights than those of model.path; throws where they are.
std::string check_model(const Job& job, const GramFiles& files) {
  if (job.model.path.empty()) return {};
  const std::string config_path = job.model.path + "/config.json";
  const std::string digest = sha256_file(config_path);
  if (files.config_sha256 != digest)
    throw InputError(job.grams.paths.front(), "config_sha256", files.config_sha256.substr(0, 12),
                     "is not that of " + config_path + " (" + digest.substr(0, 12) + ")",
                     "give Grams of this model");
  const std::string weights = weights_digest(Checkpoint::open(job.model.path));
  if (files.weights_digest.empty())
    return job.grams.paths.front() + ": weights_digest: " +
           (value_of(weight_source_words(), files.init) == WeightSource::random
                ? "its Grams are of random weights, not of those of "
                : "is not there: its Grams may be of other weights than those of ") +
           job.model.path;
  if (files.weights_digest != weights)
    throw InputError(job.grams.paths.front(), "weights_digest", files.weights_digest.substr(0, 12),
                     "is not that of " + job.model.path + " (" + weights.substr(0, 12) + ")",
                     "give Grams of this checkpoint");
  return {};
}

void check_tokens(const Job& job, const GramFiles& files) {
  const GramStream& keys = files.streams.front();
  const std::string& path = job.grams.paths.front();
  if (keys.skip_first < job.compress.exact_first)
    throw InputError(path, "skip_first", std::to_string(keys.skip_first),
                     "lets tokens into the Grams that a cache with compress.exact_first = " +
                         std::to_string(job.compress.exact_first) + " keeps exactly",
                     "study with tokens.skip_first = " + std::to_string(job.compress.exact_first) +
                         ", or give compress.exact_first = " + std::to_string(keys.skip_first));
  const std::int64_t columns = keys.heads() / files.attention->layers * keys.head_size;
  if (files.fit_tokens < 2 * columns)
    throw InputError(path, "tokens", std::to_string(files.fit_tokens),
                     "are too few to fit the " + std::to_string(columns) + " columns of a layer on",
                     "give Grams of at least " + std::to_string(2 * columns) + " fit tokens together");
}

/// Variances up to which columns first .. first + columns do not vary.
std::vector<double> least_variances(const Calibration& calibration, const HeadGram& gram, std::int64_t first,
                                    std::int64_t columns) {
  std::vector<double> least;
  for (std::int64_t i = first; i < first + columns; ++i) {
    const double error = 64 * std::numeric_limits<double>::epsilon() * gram.mean[static_cast<std::size_t>(i)];
    least.push_back(std::max(error * error, calibration.rules.smallest_square()));
  }
  return least;
}

/// Refuses Grams that are those of no data: the heads of a layer together below 0 by more than the rounding
/// that R² is allowed. Each rank looks at every size()-th layer. Collective.
void check_definite(const std::string& path, const Calibration& calibration) {
  const Comm& comm = calibration.comm();
  const std::int64_t layers = calibration.config.layers, heads = calibration.config.kv_heads,
                     d = calibration.layout.head_size;
  for (const auto& [stream, grams] : calibration.grams)
    for (std::int64_t first = 0; first < layers; first += comm.size()) {
      const std::int64_t layer = first + comm.rank();
      std::vector<std::int64_t> own(layer < layers ? static_cast<std::size_t>(heads) : 0);
      std::iota(own.begin(), own.end(), layer * heads);
      std::vector<double> covariance = covariance_of(grams.fit, own, d);
      agree(comm, [&, &name = stream, &fit = grams.fit] {
        if (own.empty()) return;
        if (!is_semidefinite(std::move(covariance), heads * d,
                             least_variances(calibration, fit, layer * heads * d, heads * d),
                             calibration.rules.band()))
          throw InputError(path, word_of(stream_words(), name) + ", layer " + std::to_string(layer), "",
                           "its Gram is not positive semidefinite", "the file is damaged");
      });
    }
}

}  // namespace

GramOrigin check_calibration_grams(const Job& job) {
  const GramFiles files = read_gram_files(of_keys_and_values(job));
  const std::string& path = job.grams.paths.front();
  const std::string mismatch = check_model(job, files);
  check_attention(files, path);
  GramOrigin origin{sizes_of(files, path),
                    files.config_sha256,
                    files.weights_digest,
                    files.tokens_path,
                    files.tokens_sha256,
                    files.tokens_mismatch,
                    {}};
  if (job.compress.algorithm == CompressionAlgorithm::quantise) return origin;  // fits nothing
  check_tokens(job, files);
  origin.weights_mismatch = mismatch;
  return origin;
}

Calibration calibration_of_grams(const Job& job, const GramOrigin& origin, const ProcessLayout& team) {
  UnitEvidence evidence = merge_grams(of_keys_and_values(job), team, true);
  check_value_range(team.group(), job.grams.paths.front(), evidence);
  StreamEvidence& keys = evidence.streams.front();
  GramAttention& attention = *evidence.attention;
  Calibration calibration{origin.config, keys.layout, keys.rules, {}, {}, {}};
  calibration.moments = {attention.layers,           attention.heads,
                         origin.config.kv_heads,     attention.head_size,
                         std::move(attention.scale), std::move(attention.query),
                         std::move(attention.output)};
  for (StreamEvidence& stream : evidence.streams)
    calibration.grams.emplace(stream.origin.stream, std::move(*stream.grams));
  check_definite(job.grams.paths.front(), calibration);
  return calibration;
}

}  // namespace headspan
