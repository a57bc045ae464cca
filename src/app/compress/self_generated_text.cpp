#include "app/compress/self_generated_text.h"

#include <algorithm>

#include "app/run/cached_model.h"
#include "app/run/run_clock.h"
#include "base/checked.h"
#include "base/progress.h"
#include "base/splitmix64.h"
#include "model/forward/inference.h"

namespace headspan {
namespace {

using Tokens = std::vector<std::int64_t>;

constexpr std::int64_t kBatch = 16;  // sequences

/// Returns the token that sequences start from; check_self_generated_text ensures that there is one.
std::int64_t start_token(const ModelInput& input, const Sample& sample) {
  return input.config.bos ? *input.config.bos : sample.eos.at(0);
}

/// Generates text on a data-parallel row. Its functions are collective over the row.
class TextGenerator {
 public:
  TextGenerator(const SelfGeneration& rule, const CachedModel& model, std::int64_t start, const Tokens& eos)
      : rule_(rule), model_(model), start_(start), eos_(eos) {}

  /// Returns all sequences, or fewer after a signal to stop.
  std::vector<Tokens> generate(Progress& progress) const {
    std::vector<Tokens> sequences;
    for (std::int64_t left = rule_.tokens; left > 0 && !stop_signal_seen(model_.processes().tensor());) {
      const std::int64_t count = std::min(kBatch, left),
                         length = std::min(rule_.sequence_length, (left + count - 1) / count);
      for (Tokens& tokens : generate_batch(static_cast<std::int64_t>(sequences.size()), count, length)) {
        tokens.resize(std::min(tokens.size(), to_size(left)));
        if (tokens.empty()) break;
        left -= static_cast<std::int64_t>(tokens.size());
        progress.advance(static_cast<std::int64_t>(tokens.size()));
        sequences.push_back(std::move(tokens));
      }
    }
    return sequences;
  }

 private:
  /// Returns `count` sequences of at most `length` tokens. The first has number `first`.
  std::vector<Tokens> generate_batch(std::int64_t first, std::int64_t count, std::int64_t length) const {
    const auto cache = model_.make_cache(CacheKind::full, to_size(count));
    std::vector<Tokens> sequences(to_size(count)), new_tokens(to_size(count), Tokens{start_});
    std::vector<double> uniforms(to_size(count));
    for (std::int64_t t = 0; t < length; ++t) {
      for (std::int64_t s = 0; s < count; ++s) uniforms[to_size(s)] = token_uniform(rule_.seed, first + s, t);
      const Tokens next = sample_tokens(model_.model(), new_tokens, *cache, uniforms);
      for (std::size_t s = 0; s < sequences.size(); ++s) {
        new_tokens[s].clear();
        if (next[s] == kNotFinite) throw model_.overflow("the model's own text");
        if (next[s] < 0) continue;
        sequences[s].push_back(next[s]);
        if (std::find(eos_.begin(), eos_.end(), next[s]) == eos_.end()) new_tokens[s].push_back(next[s]);
      }
    }
    return sequences;
  }

  const SelfGeneration& rule_;
  const CachedModel& model_;
  std::int64_t start_;
  const Tokens& eos_;
};

}  // namespace

bool can_start_text(const ModelInput& input, const Sample& sample) {
  const std::int64_t vocabulary = input.config.vocab_size;
  const auto is_token = [&](std::int64_t id) { return id >= 0 && id < vocabulary; };
  return input.config.bos ? is_token(*input.config.bos) : !sample.eos.empty() && is_token(sample.eos[0]);
}

void check_self_generated_text(const ModelInput& input, const Sample& sample) {
  if (!input.config.bos && sample.eos.empty())
    throw InputError(input.config_path, "bos_token_id, eos_token_id", "", "are missing",
                     "the model's own text begins with one of them: give tokens.eos");
  const std::int64_t start = start_token(input, sample);
  if (start < 0 || start >= input.config.vocab_size)
    throw InputError(input.config_path, "bos_token_id, eos_token_id", std::to_string(start),
                     "is not an id of a vocabulary of " + std::to_string(input.config.vocab_size),
                     "the model's own text begins with it");
}

void add_self_generated_text(const SelfGeneration& rule, const ModelInput& input, const Transformer& model,
                             const ProcessLayout& processes, const Log& log, Sample& sample) {
  const CachedModel cached(model, input, processes);
  const TextGenerator generator(rule, cached, start_token(input, sample), sample.eos);
  Progress progress(log, "write", "tokens", rule.tokens);
  std::vector<Tokens> sequences;
  agree(processes.group(), [&] {
    if (processes.data().rank() == 0) sequences = generator.generate(progress);
  });
  stop_where_asked(processes.group());
  auto count = static_cast<std::int64_t>(sequences.size());
  processes.group().broadcast(&count, 1, 0);
  sequences.resize(to_size(count));
  for (Tokens& tokens : sequences) {
    auto length = static_cast<std::int64_t>(tokens.size());
    processes.group().broadcast(&length, 1, 0);
    tokens.resize(to_size(length));
    processes.group().broadcast(tokens.data(), length, 0);
    sample.sequences.push_back({0, length});
    sample.heldout.push_back(0);
    sample.tokens.push_back(std::move(tokens));
  }
}

}  // namespace headspan
