#include "app/archive/codec_coefficients.h"

#include <algorithm>
#include <map>

#include "app/capture/rounds.h"
#include "app/run/run_clock.h"
#include "base/checked.h"

namespace headspan {
namespace {

/// Keys and values of the kept tokens of a batch: [layers, tokens, kv_heads, d] by stream.
struct BatchValues {
  std::int64_t tokens = 0;
  std::map<Stream, std::vector<float>> values;
};

/// Returns the positions of a packed batch that are kept.
std::vector<std::int64_t> kept_rows(const PackedBatch& batch, std::int64_t skip_first) {
  std::vector<std::int64_t> rows;
  std::int64_t first = 0;
  for (const std::int64_t length : batch.lengths) {
    for (std::int64_t i = std::min(skip_first, length); i < length; ++i) rows.push_back(first + i);
    first += length;
  }
  return rows;
}

/// Runs a batch and returns its keys, before the rotary embedding, and values, of all heads. Collective over
/// the tensor-parallel ranks.
BatchValues run_batch(const Transformer& model, const PackedBatch& batch, std::int64_t skip_first,
                      const ProcessLayout& processes) {
  const ModelConfig& config = model.config();
  const std::vector<std::int64_t> rows = kept_rows(batch, skip_first);
  const std::int64_t d = config.head_size, of_token = config.kv_heads * d;
  BatchValues found;
  found.tokens = static_cast<std::int64_t>(rows.size());
  for (const auto& word : cached_stream_words())
    found.values[word.second].resize(to_size(config.layers * found.tokens * of_token));
  const auto sink = [&](std::int64_t layer, Stream stream, const float* values) {
    const Range heads = model.heads(stream);
    float* const to = &found.values.at(stream)[to_size(layer * found.tokens * of_token)];
    for (std::size_t t = 0; t < rows.size(); ++t)
      std::copy_n(values + rows[t] * heads.count * d, heads.count * d,
                  to + static_cast<std::int64_t>(t) * of_token + heads.first * d);
  };
  model.capture<float>(batch, CapturePoint::normed, {Stream::k, Stream::v}, sink);
  if (processes.tensor().size() > 1)
    for (auto& [stream, values] : found.values)
      processes.tensor().sum(values.data(), static_cast<std::int64_t>(values.size()));
  return found;
}

/// Returns the columns of a group: [tokens, D].
std::vector<float> columns_of(const BatchValues& batch, Stream stream, const CodecGroup& group,
                              std::int64_t of_layer) {
  std::vector<float> x(to_size(batch.tokens * group.layers * of_layer));
  for (std::int64_t l = 0; l < group.layers; ++l)
    for (std::int64_t t = 0; t < batch.tokens; ++t)
      std::copy_n(&batch.values.at(stream)[to_size(((group.first_layer + l) * batch.tokens + t) * of_layer)],
                  of_layer, &x[to_size((t * group.layers + l) * of_layer)]);
  return x;
}

}  // namespace

CodecCoefficients::CodecCoefficients(const Transformer& model, const CodecTokens& tokens,
                                     const ProcessLayout& processes, const KvCodec& codec)
    : model_(model), tokens_(tokens), processes_(processes), no_levels_(std::vector<LevelModel>()) {
  of_layer_ = codec.kv_heads * codec.head_size;
  for (const auto& [stream, groups] : codec.streams)
    for (const CodecGroup& group : groups) {
      const bool is_own = to_int(static_cast<std::int64_t>(groups_.size())) % processes.tensor().size() ==
                          processes.tensor().rank();
      groups_.push_back(
          {stream, &group, is_own ? std::make_unique<GroupCoder>(codec, group, no_levels_) : nullptr});
    }
}

void CodecCoefficients::for_tokens(bool heldout, std::int64_t most, const Use& use) const {
  const Sample& sample = tokens_.sample;
  std::vector<std::uint8_t> done(sample.sequences.size());
  std::int64_t taken = 0;
  for (std::size_t s = 0; s < done.size(); ++s) {
    done[s] = (sample.heldout[s] != 0) != heldout || taken >= most;
    if (done[s] == 0) taken += sample.sequences[s].length;
  }
  for (const Round& round :
       plan_remaining(sample.sequences, processes_.data().size(), tokens_.batch_tokens, done)) {
    stop_where_asked(processes_.group());
    PackedBatch batch;
    for (const std::int64_t s : round[to_size(processes_.data().rank())]) {
      const auto& ids = sample.tokens[to_size(s)];
      batch.tokens.insert(batch.tokens.end(), ids.begin(), ids.end());
      batch.lengths.push_back(static_cast<std::int64_t>(ids.size()));
    }
    if (batch.tokens.empty()) continue;
    const BatchValues values = run_batch(model_, batch, tokens_.skip_first, processes_);
    if (values.tokens == 0) continue;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (const Group& group = groups_[g]; group.coder)
        use(g, *group.coder,
            group.coder->coefficients(columns_of(values, group.stream, *group.group, of_layer_).data(),
                                      values.tokens));
  }
}

}  // namespace headspan
