#include "bench/made_up_plan.h"

#include <random>

#include "base/error.h"

namespace headspan {
namespace {

/// Small enough for what is made of them to stay finite.
template <class T>
std::vector<T> draw(std::int64_t count, std::mt19937& engine) {
  std::uniform_real_distribution<float> uniform(-0.02F, 0.02F);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = static_cast<T>(uniform(engine));
  return values;
}

/// An eighth of the columns in 8 bits, three in 5, three in 3: 32 bits for each 8 columns of 16, and scales.
PlannedBlock latents(std::int64_t columns, std::mt19937& engine) {
  const std::int64_t eighth = columns / 8, r = 7 * eighth;
  PlannedBlock block;
  block.bands = {{eighth, 8}, {3 * eighth, 5}, {3 * eighth, 3}};
  block.mean = block.bias = draw<double>(columns, engine);
  block.projection = draw<float>(columns * r, engine);
  block.reconstruction = draw<float>(r * columns, engine);
  return block;
}

PlannedBlock kept_heads(std::int64_t layer, std::int64_t heads, std::int64_t d, std::mt19937& engine) {
  PlannedBlock block;
  for (std::int64_t head = 0; head < heads; head += 2) block.kept.push_back(head);
  const auto kept = static_cast<std::int64_t>(block.kept.size());
  block.bands = {{kept * d, kPlainBits}};
  for (std::int64_t head = 1; head < heads; head += 2) {
    block.targets.push_back(head);
    for (std::int64_t i = 0; i < 2; ++i)
      block.references.push_back(kept > i ? layer * heads + (head - 1 + 2 * i) % (2 * kept) : -1);
  }
  const auto targets = static_cast<std::int64_t>(block.targets.size());
  block.map = draw<float>(targets * 2 * d * d, engine);
  block.bias = draw<double>(targets * d, engine);
  return block;
}

}  // namespace

CompressionPlan made_up_plan(const ModelConfig& config, const std::string& algorithm) {
  const std::optional<CompressionAlgorithm> known = value_of(algorithm_words(), algorithm);
  const bool latent = known == CompressionAlgorithm::latent;
  if (!latent && known != CompressionAlgorithm::headspan)
    throw InputError("", "--plan", algorithm, "cannot be made up", "name a file, latent or headspan");
  CompressionPlan plan;
  plan.algorithm = *known;
  plan.layers = config.layers;
  plan.kv_heads = config.kv_heads;
  plan.head_size = config.head_size;
  plan.references = 2;
  std::mt19937 engine(7);
  for (const Stream stream : {Stream::k, Stream::v})
    for (std::int64_t layer = 0; layer < plan.layers; ++layer)
      plan.streams[stream].push_back(latent ? latents(plan.columns(), engine)
                                            : kept_heads(layer, plan.kv_heads, plan.head_size, engine));
  return plan;
}

}  // namespace headspan
