#include "app/compress/measured_kl.h"

#include <algorithm>
#include <numeric>

#include "base/checked.h"
#include "base/range.h"
#include "model/cache/paged_cache.h"
#include "model/forward/inference.h"

namespace headspan {
namespace {

constexpr std::int64_t kTokens = 512;

/// Returns the first kTokens fit tokens, as sequences.
std::vector<std::vector<std::int64_t>> first_tokens(const Sample& sample) {
  std::vector<std::vector<std::int64_t>> sequences;
  std::int64_t left = kTokens;
  for (std::size_t s = 0; s < sample.sequences.size() && left > 0; ++s) {
    if (sample.heldout[s] != 0) continue;
    sequences.push_back(sample.tokens[s]);
    const auto length = static_cast<std::int64_t>(sequences.back().size());
    sequences.back().resize(to_size(std::min(left, length)));
    left -= length;
  }
  return sequences;
}

}  // namespace

MeasuredKl make_measured_kl(const Transformer& model, const ModelInput& input, const Sample& sample,
                            std::int64_t exact_first, const ProcessLayout& processes) {
  const ModelConfig& config = input.config;
  const Range heads = model.heads(Stream::k);
  const CacheTypes types{input.dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32, input.dtype};
  std::vector<std::vector<std::int64_t>> sequences = first_tokens(sample);
  const auto count = static_cast<std::int64_t>(sequences.size());
  const CachePlan full = full_plan(config, heads);
  PagedCache cache(full, count, types, processes.tensor_device());
  HiddenStates reference = hidden_states(model, sequences, cache);
  return [&model, &config, &processes, heads, types, exact_first, count, sequences = std::move(sequences),
          reference = std::move(reference)](Stream stream, std::int64_t layer, const PlannedBlock& block) {
    CompressionPlan plan;
    plan.algorithm = CompressionAlgorithm::latent;
    plan.kv_heads = config.kv_heads;
    plan.head_size = config.head_size;
    plan.exact_first = exact_first;
    plan.streams[stream].resize(to_size(config.layers));
    plan.streams[stream][to_size(layer)] = block;
    const CachePlan one_block =
        one_block_plan(config, plan, stream, layer, heads, scalar_type(types.compute));
    PagedCache cache(one_block, count, types, processes.tensor_device());
    double sum = 0, tokens = 0;
    for (const Scores& scores :
         score(model, sequences, std::vector<std::int64_t>(sequences.size(), 1), cache, reference)) {
      sum = std::accumulate(scores.divergence.begin(), scores.divergence.end(), sum);
      tokens += static_cast<double>(scores.divergence.size());
    }
    double loss = tokens > 0 ? sum / tokens : 0;
    processes.group().broadcast(&loss, 1, 0);
    return loss;
  };
}

}  // namespace headspan
