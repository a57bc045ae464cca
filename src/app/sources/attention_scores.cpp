#include "app/sources/attention_scores.h"

#include <algorithm>
#include <cmath>

#include "app/job/job_rules.h"
#include "base/checked.h"
#include "base/error.h"
#include "base/splitmix64.h"

namespace headspan {
namespace {

constexpr std::int64_t kLongest = 512, kSampleTokens = 2048, kRepeatedTexts = 16, kPeriod = 50;
static_assert(kRepeatedTexts * (2 * kPeriod + 1) + kSampleTokens + kLongest <= kMostScoredTokens);

using Texts = std::vector<std::vector<std::int64_t>>;

/// Returns whether an id ends, begins or fills a text.
bool is_special(const ModelConfig& config, std::int64_t id) {
  return id == config.bos || id == config.pad ||
         std::find(config.eos.begin(), config.eos.end(), id) != config.eos.end();
}

/// Returns how many tokens a repeated text repeats. Every second draw at least gives a new token.
std::int64_t period_of(const ModelConfig& config) {
  const std::int64_t special = 2 + static_cast<std::int64_t>(config.eos.size());
  return std::min({kPeriod, (config.max_positions - 1) / 2, (config.vocab_size - special) / 2});
}

Texts repeated_texts(const ModelConfig& config, std::int64_t seed) {
  SplitMix64 random(static_cast<std::uint64_t>(seed));
  Texts texts;
  for (std::int64_t i = 0; i < kRepeatedTexts; ++i) {
    std::vector<std::int64_t> drawn;
    while (static_cast<std::int64_t>(drawn.size()) < period_of(config)) {
      const auto id =
          static_cast<std::int64_t>(random.next() % static_cast<std::uint64_t>(config.vocab_size));
      if (!is_special(config, id) && std::find(drawn.begin(), drawn.end(), id) == drawn.end())
        drawn.push_back(id);
    }
    std::vector<std::int64_t>& text = texts.emplace_back();
    if (config.bos) text.push_back(*config.bos);
    text.insert(text.end(), drawn.begin(), drawn.end());
    text.insert(text.end(), drawn.begin(), drawn.end());
  }
  return texts;
}

Texts sample_texts(const Sample& sample) {
  Texts texts;
  std::int64_t total = 0;
  for (const std::vector<std::int64_t>& tokens : sample.tokens) {
    if (total >= kSampleTokens) break;
    if (tokens.size() < 2) continue;
    const auto length = std::min(static_cast<std::int64_t>(tokens.size()), kLongest);
    texts.emplace_back(tokens.begin(), tokens.begin() + length);
    total += length;
  }
  return texts;
}

/// Runs this row's share of the texts, and calls use(queries and keys) for each layer of a batch.
template <class Use>
void run(const Transformer& model, const Texts& texts, std::int64_t batch_tokens,
         const ProcessLayout& processes, const Use& use) {
  PackedBatch batch;
  const auto flush = [&] {
    if (batch.lengths.empty()) return;
    at::Tensor q;
    const auto sink = [&](std::int64_t layer, Stream stream, const at::Tensor& values) {
      if (stream == Stream::q)
        q = values;
      else
        use(LayerQueries{layer, model.heads(Stream::q), q, values, &batch.lengths});
    };
    model.capture_tensors(batch, CapturePoint::roped, {Stream::q, Stream::k}, sink);
    batch = {};
  };
  const auto row = to_size(processes.data().rank()), rows = to_size(processes.data().size());
  for (std::size_t i = row; i < texts.size(); i += rows) {
    const auto length = static_cast<std::int64_t>(texts[i].size());
    if (static_cast<std::int64_t>(batch.tokens.size()) + length > batch_tokens) flush();
    batch.tokens.insert(batch.tokens.end(), texts[i].begin(), texts[i].end());
    batch.lengths.push_back(length);
  }
  flush();
}

/// Returns the mean of value(tokens that a query reads) over queries first, first + 1, ... of every text.
template <class Value>
double uniform_mean(const Texts& texts, const Value& value, std::int64_t last_queries) {
  double sum = 0, count = 0;
  for (const std::vector<std::int64_t>& text : texts) {
    const auto length = static_cast<std::int64_t>(text.size());
    for (std::int64_t read = last_queries > 0 ? length - last_queries + 1 : 2; read <= length; ++read) {
      sum += value(static_cast<double>(read));
      ++count;
    }
  }
  return sum / count;
}

}  // namespace

void check_attention_scores(const ModelConfig& config) {
  if (period_of(config) < 2)
    throw InputError("", "attention.scores", "true",
                     "needs a text of random tokens that come twice, for which the model's context or its "
                     "vocabulary is too small",
                     "leave it out");
}

AttentionScores measure_attention(const Transformer& model, const Sample& sample, std::int64_t seed,
                                  std::int64_t batch_tokens, const ProcessLayout& processes) {
  const ModelConfig& config = model.config();
  const Texts repeated = repeated_texts(config, seed), samples = sample_texts(sample);
  const std::int64_t period = period_of(config);
  HeadScoreSums sums(config);
  run(model, repeated, batch_tokens, processes,
      [&](const LayerQueries& layer) { sums.add_repeated(layer, period); });
  run(model, samples, batch_tokens, processes, [&](const LayerQueries& layer) { sums.add_sample(layer); });
  const auto weight = [](double read) { return 1 / read; };
  const double of_repeated = uniform_mean(repeated, weight, period),
               of_sample = uniform_mean(samples, weight, 0);
  const double entropy = uniform_mean(
      samples, [](double read) { return std::log(read); }, 0);
  return {config.layers,
          config.heads,
          sums.finish(processes.group()),
          {{of_repeated}, {of_repeated}, {of_sample}, {of_sample}, {entropy}}};
}

}  // namespace headspan
