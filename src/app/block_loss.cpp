#include "app/block_loss.h"

#include <algorithm>
#include <numeric>

#include "model/inference.h"

namespace headspan {
namespace {

constexpr std::int64_t kTokens = 512;

std::vector<std::vector<std::int64_t>> first_tokens(const Sample& sample) {
  std::vector<std::vector<std::int64_t>> sequences;
  std::int64_t left = kTokens;
  for (std::size_t s = 0; s < sample.sequences.size() && left > 0; ++s) {
    if (sample.heldout[s] != 0) continue;
    sequences.push_back(sample.tokens[s]);
    const auto length = static_cast<std::int64_t>(sequences.back().size());
    sequences.back().resize(static_cast<std::size_t>(std::min(left, length)));
    left -= length;
  }
  return sequences;
}

}  // namespace

BlockLoss measured_loss(const Transformer& model, const ModelInput& input, const Sample& sample,
                        std::int64_t exact_first, const Team& team) {
  return [&model, &input, &team, exact_first, sequences = first_tokens(sample)](
             const std::string& stream, std::int64_t layer, const PlannedBlock& block) {
    const ModelConfig& config = input.config;
    CompressionPlan plan;
    plan.algorithm = "latent";
    plan.kv_heads = config.kv_heads;
    plan.head_size = config.head_size;
    plan.exact_first = exact_first;
    std::vector<PlannedBlock> blocks(static_cast<std::size_t>(config.layers));
    blocks[static_cast<std::size_t>(layer)] = block;
    const Range heads = model.heads(Stream::k);
    const Dtype compute = input.dtype == Dtype::float64 ? Dtype::float64 : Dtype::float32;
    const CachePlan full = full_plan(config, heads),
                    one = one_block_plan(config, plan, stream, layer, blocks, heads, scalar_type(compute));
    const auto count = static_cast<std::int64_t>(sequences.size());
    PagedCache cache(one, count, compute, input.dtype, team.tensor()),
        reference(full, count, compute, input.dtype, team.tensor());
    double sum = 0, tokens = 0;
    for (const Scores& scores :
         score(model, sequences, std::vector<std::int64_t>(sequences.size(), 1), cache, &reference)) {
      sum = std::accumulate(scores.divergence.begin(), scores.divergence.end(), sum);
      tokens += static_cast<double>(scores.divergence.size());
    }
    double loss = tokens > 0 ? sum / tokens : 0;
    team.group().broadcast(&loss, 1, 0);
    return loss;
  };
}

}  // namespace headspan
