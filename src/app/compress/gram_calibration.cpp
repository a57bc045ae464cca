#include "app/compress/gram_calibration.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "app/job/job_rules.h"
#include "app/sources/merge_grams.h"
#include "app/sources/value_range.h"
#include "base/checked.h"
#include "base/sha256.h"
#include "dist/comm/agreement.h"
#include "dist/matrix/linear_algebra.h"
#include "io/checkpoint/content_digest.h"

namespace headspan {
namespace {

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

/// Returns the sizes of attention, from Grams of all KV heads of all layers.
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
      whole =
          stream.layer[to_size(h)] == h / config.kv_heads && stream.head[to_size(h)] == h % config.kv_heads;
  }
  if (!whole)
    throw InputError(path, "attention", "", "does not go with the heads of k and v in the file",
                     "the file is damaged");
  return config;
}

/// Returns why the Grams may be of other weights than the model's; empty if they are of the same, or if no
/// model is named. Throws InputError if they are certainly of another model. `path`: the first Gram file.
std::string check_model(const std::string& model, const std::string& path, const GramFiles& files) {
  if (model.empty()) return {};
  const std::string config_path = model + "/config.json";
  const std::string digest = sha256_file(config_path);
  if (files.config_sha256 != digest)
    throw InputError(path, "config_sha256", files.config_sha256.substr(0, 12),
                     "is not that of " + config_path + " (" + digest.substr(0, 12) + ")",
                     "give Grams of this model");
  const std::string weights = weights_digest(Checkpoint::open(model));
  if (files.weights_digest.empty())
    return path + ": weights_digest: " +
           (value_of(weight_source_words(), files.init) == WeightSource::random
                ? "its Grams are of random weights, not of those of "
                : "is not there: its Grams may be of other weights than those of ") +
           model;
  if (files.weights_digest != weights)
    throw InputError(path, "weights_digest", files.weights_digest.substr(0, 12),
                     "is not that of " + model + " (" + weights.substr(0, 12) + ")",
                     "give Grams of this checkpoint");
  return {};
}

void check_tokens(std::int64_t exact_first, const std::string& path, const GramFiles& files) {
  const GramStream& keys = files.streams.front();
  if (keys.skip_first < exact_first)
    throw InputError(path, "skip_first", std::to_string(keys.skip_first),
                     "lets tokens into the Grams that a cache with compress.exact_first = " +
                         std::to_string(exact_first) + " keeps exactly",
                     "study with tokens.skip_first = " + std::to_string(exact_first) +
                         ", or give compress.exact_first = " + std::to_string(keys.skip_first));
  const std::int64_t columns = keys.heads() / files.attention->layers * keys.head_size;
  if (files.fit_tokens < 2 * columns)
    throw InputError(path, "tokens", std::to_string(files.fit_tokens),
                     "are too few to fit the " + std::to_string(columns) + " columns of a layer on",
                     "give Grams of at least " + std::to_string(2 * columns) + " fit tokens together");
}

/// Returns the variances below which columns first .. first + columns count as constant.
std::vector<double> min_variances(const Calibration& calibration, const HeadGram& gram, std::int64_t first,
                                  std::int64_t columns) {
  std::vector<double> variances;
  for (std::int64_t i = first; i < first + columns; ++i) {
    const double error = 64 * std::numeric_limits<double>::epsilon() * gram.mean[to_size(i)];
    variances.push_back(std::max(error * error, calibration.rules.smallest_square()));
  }
  return variances;
}

/// Throws AgreedError unless the Gram of the heads of each layer is positive semidefinite, up to the rounding
/// allowed for R2. Each rank checks every size()-th layer. Collective.
void check_definite(const std::string& path, const Calibration& calibration) {
  const Comm& comm = calibration.comm();
  const std::int64_t layers = calibration.config.layers, heads = calibration.config.kv_heads,
                     d = calibration.layout.head_size;
  for (const auto& [stream, grams] : calibration.grams)
    for (std::int64_t first = 0; first < layers; first += comm.size()) {
      const std::int64_t layer = first + comm.rank();
      std::vector<std::int64_t> layer_heads(layer < layers ? to_size(heads) : 0);
      std::iota(layer_heads.begin(), layer_heads.end(), layer * heads);
      std::vector<double> covariance = covariance_of(grams.fit, layer_heads, d);
      agree(comm, [&, &name = stream, &fit = grams.fit] {
        if (layer < layers && !is_semidefinite(std::move(covariance), heads * d,
                                               min_variances(calibration, fit, layer * heads * d, heads * d),
                                               calibration.rules.band()))
          throw InputError(path, word_of(stream_words(), name) + ", layer " + std::to_string(layer), "",
                           "its Gram is not positive semidefinite", "the file is damaged");
      });
    }
}

}  // namespace

GramOrigin check_calibration_grams(const Job& job) {
  const GramFiles files = read_gram_files(job.grams.paths, {Stream::k, Stream::v});
  const std::string& path = job.grams.paths.front();
  const std::string mismatch = check_model(job.model.path, path, files);
  check_attention(files, path);
  GramOrigin origin{sizes_of(files, path),
                    files.config_sha256,
                    files.weights_digest,
                    files.tokens_path,
                    files.tokens_sha256,
                    files.tokens_mismatch,
                    {}};
  if (!is_calibrated(job.compress.algorithm)) return origin;  // nothing is fitted
  check_tokens(job.compress.exact_first, path, files);
  origin.weights_mismatch = mismatch;
  return origin;
}

Calibration calibration_of_grams(const Job& job, const GramOrigin& origin, const ProcessLayout& processes) {
  Job::Predict predict = job.predict;
  predict.streams = {Stream::k, Stream::v};
  UnitEvidence evidence = merge_grams(job.grams.paths, predict, processes, true);
  check_value_range(job.grams.paths.front(), evidence, processes.group());
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
