#include "app/evaluate/evaluate_input.h"

#include <filesystem>

#include "app/archive/encode.h"
#include "app/job/job_file.h"
#include "base/sha256.h"
#include "io/archive/codec_file.h"
#include "io/checkpoint/content_digest.h"

namespace headspan {
namespace {

Text read_text(Job::Tokens rule, const std::string& path, const ModelInput& input, const std::string& model) {
  rule.path = path;
  rule.heldout = 0;
  rule.skip_first = 0;
  return {std::filesystem::path(path).stem().string(),
          take_sample(rule, input.config, input.config_path, model)};
}

/// Throws InputError unless what was calibrated belongs to the model's config.
void check_config(const std::string& path, const std::string& what, const std::string& config_sha256,
                  const ModelInput& input) {
  if (config_sha256 == input.config_sha256) return;
  throw InputError(path, "config_sha256", config_sha256.substr(0, 12),
                   "is not that of " + input.config_path + " (" + input.config_sha256.substr(0, 12) + ")",
                   "give a " + what + " that was calibrated on this model");
}

/// Reads the plan or the codec, unless the cache is to be full.
void read_compression(const Job& job, EvaluateInput& read) {
  if (job.evaluate.cache == CacheKind::full) return;
  if (!job.evaluate.plan.empty()) {
    read.source = job.evaluate.plan;
    read.plan = read_plan(read.source);
    if (is_calibrated(read.plan->algorithm)) read.source_weights = read.plan->weights_digest;
    check_config(read.source, "plan", read.plan->config_sha256, read.input);
  } else {
    read.source = job.archive.codec;
    KvCodec codec = read_codec(read.source);
    check_config(read.source, "codec", codec.config_sha256, read.input);
    read.source_weights = codec.weights_digest;
    const int step = step_of(job.archive, codec);
    read.codec = CodecInput{std::move(codec), step};
  }
}

}  // namespace

EvaluateInput read_evaluate_input(const Job& job) {
  EvaluateInput read;
  read.input = open_model(job.model, job.model.path, false, true);
  read_compression(job, read);
  const Job::Evaluate& rule = job.evaluate;
  for (const std::string& path : rule.texts) {
    read.texts.push_back(read_text(job.tokens, path, read.input, job.model.name));
    for (std::size_t t = 0; t + 1 < read.texts.size(); ++t)
      if (read.texts[t].name == read.texts.back().name)
        throw InputError("", "evaluate.texts", path, "has the name of another text in the summary",
                         "give files of different names");
  }
  const ModelConfig& config = read.input.config;
  if (!rule.requests.empty())
    read.scored = read_scored_requests(rule.requests, config.vocab_size, config.max_positions);
  if (!rule.generate.empty())
    read.generated = read_generation_requests(rule.generate, config.vocab_size, config.max_positions);
  return read;
}

void set_digests(const Job& job, EvaluateInput& input) {
  const Job::Evaluate& rule = job.evaluate;
  input.weights_digest = weights_digest(*input.input.checkpoint);
  std::string text = to_ini(job, Command::evaluate) + input.input.config_sha256 + input.weights_digest +
                     change_times(input.input.checkpoint->files());
  for (const std::string& path : {input.source, rule.requests, rule.generate})
    if (!path.empty()) text += sha256_file(path);
  input.identity = sha256_hex(text);
}

}  // namespace headspan
