#include "app/compress/self_generated_text.h"

#include <algorithm>

#include "app/run/cached_model.h"
#include "app/run/run_clock.h"
#include "base/splitmix64.h"
#include "model/forward/inference.h"

namespace headspan {
namespace {

using Tokens = std::vector<std::int64_t>;

constexpr std::int64_t kTogether = 16;

/// Behind which a sequence begins. There is one: check_self_generated_text.
std::int64_t first_token(const ModelInput& input, const Tokens& ends) {
  return input.config.bos ? *input.config.bos : ends.at(0);
}

double chance(std::int64_t seed, std::int64_t sequence, std::int64_t token) {
  constexpr std::uint64_t kStep = 0x9e3779b97f4a7c15u;  // SplitMix64's own from one output to the next
  const std::uint64_t number =
      (static_cast<std::uint64_t>(sequence) << 32) + static_cast<std::uint64_t>(token);
  return static_cast<double>(SplitMix64(static_cast<std::uint64_t>(seed) + number * kStep).next() >> 11) *
         0x1p-53;
}

/// Sequences `first` and on, `count` of them, of at most `length` tokens. Collective over the row.
std::vector<Tokens> write_together(const Job& job, const ModelInput& input, const Tokens& ends,
                                   const CachedModel& model, std::int64_t first, std::int64_t count,
                                   std::int64_t length) {
  const auto cache = model.make_cache(CacheKind::full, static_cast<std::size_t>(count));
  std::vector<Tokens> written(static_cast<std::size_t>(count)),
      fresh(written.size(), Tokens{first_token(input, ends)});
  std::vector<double> uniforms(written.size());
  for (std::int64_t t = 0; t < length; ++t) {
    for (std::size_t s = 0; s < written.size(); ++s)
      uniforms[s] = chance(job.tokens.seed, first + static_cast<std::int64_t>(s), t);
    const Tokens next = sample_tokens(model.model(), fresh, *cache, uniforms);
    for (std::size_t s = 0; s < written.size(); ++s) {
      fresh[s].clear();
      if (next[s] < 0) continue;
      written[s].push_back(next[s]);
      if (std::find(ends.begin(), ends.end(), next[s]) == ends.end()) fresh[s].push_back(next[s]);
    }
  }
  return written;
}

/// Collective over the row.
std::vector<Tokens> write(const Job& job, const ModelInput& input, const Tokens& ends,
                          const CachedModel& model, Progress& progress) {
  std::vector<Tokens> all;
  for (std::int64_t left = job.compress.own_text;
       left > 0 && !stop_signal_seen(model.processes().tensor());) {
    const std::int64_t count = std::min(kTogether, left),
                       length = std::min(job.tokens.sequence_length, (left + count - 1) / count);
    for (Tokens& tokens :
         write_together(job, input, ends, model, static_cast<std::int64_t>(all.size()), count, length)) {
      tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(left)));
      if (tokens.empty()) break;
      left -= static_cast<std::int64_t>(tokens.size());
      progress.advance(static_cast<std::int64_t>(tokens.size()));
      all.push_back(std::move(tokens));
    }
  }
  return all;
}

}  // namespace

void check_self_generated_text(const Job& job, const ModelInput& input, const Sample& sample) {
  if (job.compress.own_text == 0) return;
  if (!input.config.bos && sample.eos.empty())
    throw InputError(input.config_path, "bos_token_id, eos_token_id", "", "are missing",
                     "the model's own text begins with one of them: give tokens.eos");
  const std::int64_t first = first_token(input, sample.eos);
  if (first < 0 || first >= input.config.vocab_size)
    throw InputError(input.config_path, "bos_token_id, eos_token_id", std::to_string(first),
                     "is not an id of a vocabulary of " + std::to_string(input.config.vocab_size),
                     "the model's own text begins with it");
}

void add_self_generated_text(const Job& job, const ModelInput& input, const Transformer& model,
                             const ProcessLayout& team, const Log& log, Sample& sample) {
  const CachedModel cached(model, input, std::nullopt, "", 0, team);
  Progress progress(log, "write", "tokens", job.compress.own_text);
  const bool writes = team.data().rank() == 0;
  std::vector<Tokens> written;
  agree(team.group(), [&] {
    if (writes) written = write(job, input, sample.eos, cached, progress);
  });
  stop_where_asked(team.group());
  std::int64_t sequences = static_cast<std::int64_t>(written.size());
  team.group().broadcast(&sequences, 1, 0);
  written.resize(static_cast<std::size_t>(sequences));
  for (Tokens& tokens : written) {
    std::int64_t length = static_cast<std::int64_t>(tokens.size());
    team.group().broadcast(&length, 1, 0);
    tokens.resize(static_cast<std::size_t>(length));
    team.group().broadcast(tokens.data(), length, 0);
    sample.sequences.push_back({0, length});
    sample.heldout.push_back(0);
    sample.tokens.push_back(std::move(tokens));
  }
}

}  // namespace headspan
