// How many ranks share one copy of the weights: the smallest divisor of the ranks and of the KV heads of
// every model for which the weights fit half a rank's memory.
#include <gtest/gtest.h>

#include "app/run/rank_resources.h"
#include "base/error.h"
#include "model/weights/weights.h"

namespace headspan {
namespace {

ModelConfig config_of_heads(std::int64_t kv_heads) {
  ModelConfig config;
  config.model_type = "llama";
  config.layers = 2;
  config.hidden_size = 96;
  config.mlp_size = 128;
  config.heads = 12;
  config.kv_heads = kv_heads;
  config.head_size = 8;
  config.vocab_size = 1000;
  return config;
}

double bytes_on(const ModelConfig& config, int ranks) {
  return weight_bytes(config, {config.layers, false}, ranks, Dtype::float32);
}

int chosen(const LoadedModels& loaded, int ranks, double memory) {
  return choose_tensor_parallel(Job::Run{}, Job::Model{}, loaded, ranks, memory);
}

TEST(TensorParallel, IsTheSmallestDivisorWhoseWeightsFitHalfTheMemory) {
  const ModelConfig config = config_of_heads(4);
  const LoadedModels loaded{{{"model", config}}};
  EXPECT_EQ(chosen(loaded, 4, 2 * bytes_on(config, 1)), 1);
  EXPECT_EQ(chosen(loaded, 4, 2 * bytes_on(config, 1) - 2), 2);
  EXPECT_EQ(chosen(loaded, 4, 2 * bytes_on(config, 4)), 4);
  EXPECT_EQ(chosen(loaded, 6, 2 * bytes_on(config, 2)), 2);
}

TEST(TensorParallel, PassesOverDivisorsOfTheRanksThatDoNotDivideTheHeads) {
  const ModelConfig config = config_of_heads(3);
  const LoadedModels loaded{{{"model", config}}};
  EXPECT_EQ(chosen(loaded, 6, 2 * bytes_on(config, 3)), 3);  // not 2
  EXPECT_THROW(chosen(loaded, 4, 2 * bytes_on(config, 1) - 2), InputError);
}

TEST(TensorParallel, HoldsWithTheWeightsOfAReferenceToo) {
  const ModelConfig config = config_of_heads(6), reference = config_of_heads(3);
  const LoadedModels loaded{{{"model", config}}, Dtype::float32, false, {{"reference", reference}}};
  EXPECT_EQ(chosen(loaded, 6, 2 * (bytes_on(config, 1) + bytes_on(reference, 1))), 1);
  EXPECT_EQ(chosen(loaded, 6, 2 * (bytes_on(config, 1) + bytes_on(reference, 1)) - 2), 3);
}

TEST(TensorParallel, ThatNothingFitsIsSaidOfTheMemoryNotOfTheHeads) {
  const LoadedModels loaded{{{"model", config_of_heads(2)}}};
  try {
    chosen(loaded, 4, 1000);
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("the weights of model do not fit half of the"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace headspan
