#include "app/archive/codec_units.h"

#include <algorithm>
#include <numeric>

#include "app/archive/codec_curve.h"
#include "app/archive/recoder.h"
#include "app/run/run_clock.h"
#include "base/checked.h"
#include "io/archive/rotary.h"
#include "model/forward/inference.h"

namespace headspan {
namespace {

constexpr std::size_t kSequences = 4;
constexpr std::int64_t kTokens = 256;  // of a sequence
constexpr double kBits = 1;            // a number: where the errors are measured
constexpr double kLeast = 1e-12;       // of a measured loss

/// Returns the first tokens of some fit sequences, from all over the sample.
std::vector<std::vector<std::int64_t>> some_tokens(const Sample& sample, std::int64_t exact_first) {
  std::vector<std::size_t> usable;
  for (std::size_t s = 0; s < sample.sequences.size(); ++s)
    if (sample.heldout[s] == 0 && sample.sequences[s].length > exact_first + 1) usable.push_back(s);
  std::vector<std::vector<std::int64_t>> sequences;
  const std::size_t count = std::min(kSequences, usable.size());
  for (std::size_t i = 0; i < count; ++i) {
    sequences.push_back(sample.tokens[usable[(2 * i + 1) * usable.size() / (2 * count)]]);
    sequences.back().resize(std::min(sequences.back().size(), to_size(kTokens)));
  }
  return sequences;
}

/// Lets one layer of a stream at a time go through the codec, and sums its squared errors.
class LayerRecoder {
 public:
  LayerRecoder(const KvCodec& codec, const std::map<Stream, std::vector<double>>& metrics,
               const std::vector<std::int64_t>& document_ends)
      : recoder_(codec, 0, document_ends), metrics_(metrics) {}

  const Recoder& recoder() const { return recoder_; }

  /// Takes another step of the codec.
  void set_step(int step) {
    recoder_.set_step(step);
    coded_.clear();
  }

  void choose(Stream stream, std::int64_t layer) {
    stream_ = stream;
    layer_ = layer;
    errors_ = 0;
  }
  double errors() const { return errors_; }

  void recode(const std::vector<std::int64_t>& ids, std::vector<float>& k, std::vector<float>& v) {
    const auto [found, is_new] = coded_.try_emplace(ids);
    if (is_new) {
      found->second = {{Stream::k, k}, {Stream::v, v}};
      recoder_.recode(ids, found->second[Stream::k], found->second[Stream::v]);
    }
    std::vector<float>& exact = stream_ == Stream::k ? k : v;
    const std::vector<float>& coded = found->second[stream_];
    const auto tokens = static_cast<std::int64_t>(ids.size()),
               size = tokens * codec().kv_heads * codec().head_size;
    const auto first = layer_ * size;
    std::vector<float> error(to_size(size));
    for (std::int64_t i = 0; i < size; ++i)
      error[to_size(i)] = coded[to_size(first + i)] - exact[to_size(first + i)];
    std::copy_n(coded.begin() + first, size, exact.begin() + first);
    errors_ += squared(std::move(error), tokens);
  }

 private:
  const KvCodec& codec() const { return recoder_.codec(); }

  /// Returns the sum of e^T M e over tokens and heads. error: [tokens, kv_heads, d].
  double squared(std::vector<float> error, std::int64_t tokens) const {
    const std::int64_t d = codec().head_size, heads = codec().kv_heads;
    const std::int64_t rule = stream_ == Stream::k ? codec().rotary_of_layer[to_size(layer_)] : -1;
    if (rule >= 0) {
      std::vector<std::int64_t> positions(to_size(tokens));
      std::iota(positions.begin(), positions.end(), 0);
      const RotaryTable table(codec().rotary[to_size(rule)], positions);
      for (std::int64_t head = 0; head < heads; ++head) table.unrotate(&error[to_size(head * d)], heads * d);
    }
    double sum = 0;
    for (std::int64_t row = 0; row < tokens * heads; ++row) {
      const float* const e = &error[to_size(row * d)];
      const double* const metric = &metrics_.at(stream_)[to_size((layer_ * heads + row % heads) * d * d)];
      for (std::int64_t i = 0; i < d; ++i) {
        double product = 0;
        for (std::int64_t j = 0; j < d; ++j) product += metric[i * d + j] * static_cast<double>(e[j]);
        sum += product * static_cast<double>(e[i]);
      }
    }
    return sum;
  }

  Recoder recoder_;
  std::map<std::vector<std::int64_t>, std::map<Stream, std::vector<float>>> coded_;  // of each prompt
  const std::map<Stream, std::vector<double>>& metrics_;
  Stream stream_ = Stream::k;
  std::int64_t layer_ = 0;
  double errors_ = 0;
};

/// Sets the step at which the prompts of the cache take about kBits.
void choose_step(RereadableCache& cache, LayerRecoder& layers) {
  for (const int step : descending_steps(layers.recoder().codec())) {
    layers.set_step(step);
    cache.read_again();
    if (8 * layers.recoder().coded_bytes() >= kBits * layers.recoder().coded_numbers()) return;
  }
}

}  // namespace

std::map<Stream, std::vector<double>> measured_units(const UnitMeasurement& given, const KvCodec& codec,
                                                     const std::map<Stream, std::vector<double>>& metrics) {
  LayerRecoder layers(codec, metrics, given.document_ends);
  const CachedModel model(given.model, given.input, given.processes,
                          [&](const auto& ids, auto& k, auto& v) { layers.recode(ids, k, v); });
  const auto sequences = some_tokens(given.sample, codec.exact_first);
  std::map<Stream, std::vector<double>> units{{Stream::k, std::vector<double>(to_size(codec.layers), 1)},
                                              {Stream::v, std::vector<double>(to_size(codec.layers), 1)}};
  if (sequences.empty()) return units;
  const auto cache = model.make_rereadable(sequences.size());
  const HiddenStates exact = hidden_states(given.model, sequences, *cache);
  choose_step(*cache, layers);
  const std::vector<std::int64_t> from(sequences.size(), 1);
  for (auto& [stream, of_layers] : units)
    for (std::int64_t layer = 0; layer < codec.layers; ++layer) {
      stop_where_asked(given.processes.group());
      layers.choose(stream, layer);
      cache->read_again();
      double sum = 0;
      for (const Scores& scores : score(given.model, sequences, from, *cache, exact))
        sum = std::accumulate(scores.divergence.begin(), scores.divergence.end(), sum);
      if (layers.errors() > 0) of_layers[to_size(layer)] = std::max(sum, kLeast) / layers.errors();
    }
  for (auto& [stream, of_layers] : units)
    given.processes.group().broadcast(of_layers.data(), codec.layers, 0);
  return units;
}

}  // namespace headspan
