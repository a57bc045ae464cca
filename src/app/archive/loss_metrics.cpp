#include "app/archive/loss_metrics.h"

#include <algorithm>

#include "app/run/run_clock.h"
#include "base/checked.h"
#include "base/splitmix64.h"
#include "model/forward/key_value_gradients.h"

namespace headspan {
namespace {

constexpr std::int64_t kTokens = 8192;  // in all
constexpr std::int64_t kLength = 1024;  // of a sequence, at most: scores of all its pairs are in memory
constexpr double kRidge = 0.02;         // of the mean diagonal of a head, added to the diagonal

/// Returns the numbers of some fit sequences, from all over the sample, that have about kTokens together.
std::vector<std::size_t> some_sequences(const Sample& sample, std::int64_t skip_first) {
  std::vector<std::size_t> usable;
  std::int64_t tokens = 0;
  for (std::size_t s = 0; s < sample.sequences.size(); ++s)
    if (sample.heldout[s] == 0 && sample.sequences[s].length > skip_first) {
      usable.push_back(s);
      tokens += std::min(sample.sequences[s].length, kLength);
    }
  const std::size_t every = std::max<std::size_t>(1, to_size(tokens / kTokens));
  std::vector<std::size_t> taken;
  for (std::size_t i = 0; i < usable.size(); i += every) taken.push_back(usable[i]);
  return taken;
}

/// Divides sums by the tokens, and adds a ridge.
void finish(double tokens, std::int64_t d, std::vector<double>& metrics) {
  for (std::size_t first = 0; first < metrics.size(); first += to_size(d * d)) {
    double trace = 0;
    for (std::int64_t i = 0; i < d * d; ++i) {
      metrics[first + to_size(i)] /= tokens;
      if (i % (d + 1) == 0) trace += metrics[first + to_size(i)];
    }
    for (std::int64_t i = 0; i < d; ++i)
      metrics[first + to_size(i * (d + 1))] += kRidge * trace / static_cast<double>(d);
  }
}

}  // namespace

std::map<Stream, std::vector<double>> loss_metrics(const Transformer& model, const Sample& sample,
                                                   std::int64_t skip_first, std::int64_t seed,
                                                   const ProcessLayout& processes) {
  HS_ASSERT(processes.tensor().size() == 1);
  const ModelConfig& config = model.config();
  const std::int64_t of_layer = config.kv_heads * config.head_size * config.head_size;
  std::map<Stream, std::vector<double>> metrics;
  for (const auto& word : cached_stream_words())
    metrics[word.second].resize(to_size(config.layers * of_layer));
  double tokens = 0;
  const std::vector<std::size_t> sequences = some_sequences(sample, skip_first);
  const auto rows = to_size(processes.data().size()), row = to_size(processes.data().rank());
  for (std::size_t first = 0; first < sequences.size(); first += rows) {
    stop_where_asked(processes.group());
    if (first + row >= sequences.size()) continue;
    const std::size_t s = sequences[first + row];
    PackedBatch batch{sample.tokens[s], {}};
    batch.tokens.resize(std::min(batch.tokens.size(), to_size(kLength)));
    const auto length = static_cast<std::int64_t>(batch.tokens.size());
    batch.lengths = {length};
    std::vector<double> uniforms;
    for (std::int64_t t = 0; t < length; ++t)
      uniforms.push_back(token_uniform(seed, static_cast<std::int64_t>(s), t));
    key_value_gradients(model, batch, uniforms,
                        [&](std::int64_t layer, Stream stream, const at::Tensor& gradients) {
                          double* to = &metrics.at(stream)[to_size(layer * of_layer)];
                          for (const double product : gradient_products(gradients, skip_first))
                            *to++ += product / 2;
                        });
    tokens += static_cast<double>(length - skip_first);
  }
  processes.group().sum(&tokens, 1);
  for (auto& [stream, sums] : metrics) {
    processes.group().sum(sums.data(), static_cast<std::int64_t>(sums.size()));
    finish(std::max(1.0, tokens), config.head_size, sums);
  }
  return metrics;
}

}  // namespace headspan
