#include "model/forward/inference.h"

#include <algorithm>
#include <functional>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "base/checked.h"
#include "base/error.h"

namespace headspan {
namespace {

constexpr std::int64_t kChunk = 512;     // tokens per sequence that are run together
constexpr std::int64_t kLogitRows = 64;  // rows of logits at a time: tens of megabytes for a large vocabulary

/// Returns tokens begin .. begin + kChunk of every sequence, or as many as it has left.
PackedBatch make_chunk(const std::vector<std::vector<std::int64_t>>& sequences, std::int64_t begin) {
  PackedBatch batch;
  for (const auto& tokens : sequences) {
    const auto length = static_cast<std::int64_t>(tokens.size());
    const std::int64_t first = std::min(begin, length), last = std::min(begin + kChunk, length);
    batch.tokens.insert(batch.tokens.end(), tokens.begin() + first, tokens.begin() + last);
    batch.lengths.push_back(last - first);
  }
  return batch;
}

std::int64_t longest(const std::vector<std::vector<std::int64_t>>& sequences) {
  std::size_t length = 0;
  for (const auto& tokens : sequences) length = std::max(length, tokens.size());
  return static_cast<std::int64_t>(length);
}

at::Tensor log_probabilities(const Transformer& model, const at::Tensor& hidden) {
  return at::log_softmax(model.logits(hidden).to(at::kDouble), 1);
}

/// Appends values: [n], on any device.
template <class T>
void append(const at::Tensor& values, std::vector<T>& out) {
  const at::Tensor host = values.to(at::kCPU).to(at::CppTypeToScalarType<T>::value).contiguous();
  out.insert(out.end(), host.data_ptr<T>(), host.data_ptr<T>() + host.numel());
}

/// Appends the scores of `targets`, the tokens after those of the rows of `hidden`.
void add_scores(const Transformer& model, const at::Tensor& hidden, const at::Tensor& reference,
                const std::vector<std::int64_t>& targets, Scores& scores) {
  for (std::int64_t begin = 0; begin < hidden.size(0); begin += kLogitRows) {
    const std::int64_t count = std::min(kLogitRows, hidden.size(0) - begin);
    const at::Tensor scored = log_probabilities(model, hidden.narrow(0, begin, count));
    const at::Tensor target = at::tensor(at::IntArrayRef(targets.data() + begin, to_size(count)), at::kLong)
                                  .to(scored.device())
                                  .unsqueeze(1);
    const at::Tensor found = scored.gather(1, target).squeeze(1);
    append(found, scores.log_probability);
    append(found.ge(std::get<0>(scored.max(1))), scores.greedy);
    if (!reference.defined()) continue;
    const at::Tensor other = log_probabilities(model, reference.narrow(0, begin, count));
    append(other.gather(1, target).squeeze(1), scores.reference);
    append((other.exp() * (other - scored)).sum(1), scores.divergence);
  }
}

/// Tokens of each sequence that are run together: `count` of them from `begin` on.
struct Chunk {
  std::vector<std::int64_t> begin, count;
};

/// Scores the rows of a chunk that predict tokens from from[s] on. hidden, reference: of the chunk, or
/// undefined.
void score_chunk(const Transformer& model, const std::vector<std::vector<std::int64_t>>& sequences,
                 const std::vector<std::int64_t>& from, const Chunk& chunk, const at::Tensor& hidden,
                 const at::Tensor& reference, std::vector<Scores>& scores) {
  std::int64_t row = 0;
  for (std::size_t s = 0; s < sequences.size(); ++s) {
    HS_ASSERT(from[s] >= 1);
    const auto length = static_cast<std::int64_t>(sequences[s].size());
    const std::int64_t begin = chunk.begin[s];
    // Row i of the chunk predicts token begin + i + 1.
    const std::int64_t first = std::max<std::int64_t>(0, from[s] - 1 - begin),
                       last = std::min(chunk.count[s], length - 1 - begin);
    if (first < last) {
      const std::vector<std::int64_t> targets(sequences[s].begin() + begin + first + 1,
                                              sequences[s].begin() + begin + last + 1);
      const auto rows = [&](const at::Tensor& x) {
        return x.defined() ? x.narrow(0, row + first, last - first) : x;
      };
      add_scores(model, rows(hidden), rows(reference), targets, scores[s]);
    }
    row += chunk.count[s];
  }
}

/// Appends tokens to each sequence of the cache. Returns the next-token logits of sequences that got tokens,
/// in order.
at::Tensor next_logits(const Transformer& model, const std::vector<std::vector<std::int64_t>>& tokens,
                       KvCache& cache) {
  std::vector<at::Tensor> last(tokens.size());
  for (std::int64_t begin = 0; begin < longest(tokens); begin += kChunk) {
    const PackedBatch batch = make_chunk(tokens, begin);
    const at::Tensor hidden = model.hidden(batch, cache);
    std::int64_t row = 0;
    for (std::size_t s = 0; s < tokens.size(); ++s) {
      row += batch.lengths[s];
      if (batch.lengths[s] > 0) last[s] = hidden.narrow(0, row - 1, 1);
    }
  }
  std::vector<at::Tensor> rows;
  for (const at::Tensor& row : last)
    if (row.defined()) rows.push_back(row);
  return rows.empty() ? at::Tensor() : model.logits(at::cat(rows));
}

/// Returns the most likely token of each row; kNotFinite if its logit is infinite or NaN. argmax takes NaN
/// for the largest number, so that this finds every row with NaN.
at::Tensor most_likely(const at::Tensor& logits) {
  const at::Tensor chosen = logits.argmax(1);
  return chosen.masked_fill(logits.gather(1, chosen.unsqueeze(1)).squeeze(1).isfinite().logical_not(),
                            kNotFinite);
}

/// Returns one token for each sequence: those of `chosen`, in order, for sequences that got tokens, and -1
/// for the others.
std::vector<std::int64_t> by_sequence(const std::vector<std::vector<std::int64_t>>& tokens,
                                      const at::Tensor& chosen) {
  std::vector<std::int64_t> next(tokens.size(), -1), found;
  if (chosen.defined()) append(chosen, found);
  std::size_t taken = 0;
  for (std::size_t s = 0; s < tokens.size(); ++s)
    if (!tokens[s].empty()) next[s] = found[taken++];
  return next;
}

}  // namespace

HiddenStates hidden_states(const Transformer& model, const std::vector<std::vector<std::int64_t>>& sequences,
                           KvCache& cache) {
  const c10::InferenceMode inference;
  HiddenStates states;
  for (std::int64_t begin = 0; begin < longest(sequences); begin += kChunk)
    states.push_back(model.hidden(make_chunk(sequences, begin), cache));
  return states;
}

std::vector<Scores> score(const Transformer& model, const std::vector<std::vector<std::int64_t>>& sequences,
                          const std::vector<std::int64_t>& from, KvCache& cache,
                          const HiddenStates& reference) {
  const c10::InferenceMode inference;
  std::vector<Scores> scores(sequences.size());
  for (std::int64_t begin = 0; begin < longest(sequences); begin += kChunk) {
    const PackedBatch batch = make_chunk(sequences, begin);
    const at::Tensor hidden = model.hidden(batch, cache);
    const at::Tensor other = reference.empty() ? at::Tensor() : reference.at(to_size(begin / kChunk));
    const Chunk chunk{std::vector<std::int64_t>(sequences.size(), begin), batch.lengths};
    score_chunk(model, sequences, from, chunk, hidden, other, scores);
  }
  return scores;
}

std::vector<Scores> score_continuations(const Transformer& model,
                                        const std::vector<std::vector<std::int64_t>>& sequences,
                                        const std::vector<std::int64_t>& from, KvCache& cache) {
  const c10::InferenceMode inference;
  std::vector<Scores> scores(sequences.size());
  for (const bool prompts : {true, false}) {
    if (!prompts) cache.end_prompts();
    std::vector<std::vector<std::int64_t>> part;
    for (std::size_t s = 0; s < sequences.size(); ++s) {
      const auto middle = sequences[s].begin() + from[s];
      part.emplace_back(prompts ? sequences[s].begin() : middle, prompts ? middle : sequences[s].end());
    }
    for (std::int64_t begin = 0; begin < longest(part); begin += kChunk) {
      Chunk chunk;
      for (const std::int64_t prompt : from) chunk.begin.push_back(prompts ? begin : prompt + begin);
      const PackedBatch batch = make_chunk(part, begin);
      chunk.count = batch.lengths;
      score_chunk(model, sequences, from, chunk, model.hidden(batch, cache), {}, scores);
    }
  }
  return scores;
}

std::vector<std::int64_t> next_tokens(const Transformer& model,
                                      const std::vector<std::vector<std::int64_t>>& tokens, KvCache& cache) {
  const c10::InferenceMode inference;
  const at::Tensor logits = next_logits(model, tokens, cache);
  return by_sequence(tokens, logits.defined() ? most_likely(logits) : logits);
}

std::vector<std::int64_t> sample_tokens(const Transformer& model,
                                        const std::vector<std::vector<std::int64_t>>& tokens, KvCache& cache,
                                        const std::vector<double>& uniforms) {
  const c10::InferenceMode inference;
  const at::Tensor logits = next_logits(model, tokens, cache);
  if (!logits.defined()) return by_sequence(tokens, logits);
  std::vector<double> thresholds;
  for (std::size_t s = 0; s < tokens.size(); ++s)
    if (!tokens[s].empty()) thresholds.push_back(uniforms[s]);
  const std::int64_t last = logits.size(1) - 1;
  const at::Tensor cumulative = at::log_softmax(logits.to(at::kDouble), 1).exp().cumsum(1);
  const at::Tensor below =
      cumulative.le(at::tensor(thresholds, at::kDouble).to(logits.device()).unsqueeze(1));
  return by_sequence(
      tokens, below.sum(1).clamp_max(last).masked_fill(cumulative.select(1, last).isnan(), kNotFinite));
}

}  // namespace headspan
