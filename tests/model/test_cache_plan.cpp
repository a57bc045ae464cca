// What a cache makes of a compression plan against the plan itself, by loops over its numbers: the stored
// block of a token and every head as its decoders have it, on one rank and on the shards of two.
#include <functional>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/range.h"
#include "model/cache/cache_plan.h"
#include "plan_maker.h"
#include "support/input_error.h"

namespace headspan {
namespace {

constexpr std::int64_t kLayers = 3, kHeads = 4, kHeadSize = 3, kColumns = kHeads * kHeadSize;

ModelConfig small_config() {
  ModelConfig config;
  config.layers = kLayers;
  config.kv_heads = kHeads;
  config.heads = 2 * kHeads;
  config.head_size = kHeadSize;
  return config;
}

std::size_t at_of(std::int64_t i) { return static_cast<std::size_t>(i); }

/// A token's columns in every layer: [layers, D].
at::Tensor token() {
  return at::arange(kLayers * kColumns, at::kDouble).mul(0.7).sin().reshape({kLayers, kColumns});
}

/// What the heads of `own` give to a layer's block.
at::Tensor stored(const StoredBlock& block, const at::Tensor& columns, Range own) {
  const at::Tensor x = columns.narrow(0, own.first * kHeadSize, own.count * kHeadSize);
  if (block.projection.defined()) return (x - block.mean).matmul(block.projection);
  if (!block.kept) return x;
  at::Tensor z = at::zeros({static_cast<std::int64_t>(block.kept->size()) * kHeadSize}, at::kDouble);
  for (std::size_t i = 0; i < block.kept->size(); ++i) {
    const std::int64_t head = (*block.kept)[i];
    if (head >= own.first && head < own.first + own.count)
      z.narrow(0, static_cast<std::int64_t>(i) * kHeadSize, kHeadSize)
          .copy_(columns.narrow(0, head * kHeadSize, kHeadSize));
  }
  return z;
}

/// The heads of a layer as its decoders have them from the blocks of all layers: [heads, d].
at::Tensor read(const CachedLayer& layer, const std::vector<at::Tensor>& blocks) {
  at::Tensor heads = at::zeros({layer.kv_heads, kHeadSize}, at::kDouble);
  if (layer.bias.defined()) heads += layer.bias.squeeze(1);
  for (const StoredSlice& slice : layer.slices) {
    const at::Tensor columns = blocks[at_of(slice.layer)].narrow(0, slice.first, slice.count);
    for (const HeadDecoder& decoder : slice.decoders)
      for (std::size_t h = 0; h < decoder.heads.size(); ++h) {
        const at::Tensor z = columns.narrow(0, decoder.first, decoder.count);
        heads[decoder.heads[h]] +=
            decoder.matrix.defined() ? z.matmul(decoder.matrix[static_cast<std::int64_t>(h)]) : z;
      }
  }
  return heads;
}

/// Coordinate j of head `head` of `layer`, as a plan of latents says.
double of_latents(const PlannedBlock& block, const at::Tensor& x, std::int64_t head, std::int64_t j) {
  const std::int64_t column = head * kHeadSize + j,
                     r = static_cast<std::int64_t>(block.reconstruction.size()) / kColumns;
  double value = block.bias[at_of(column)];
  for (std::int64_t i = 0; i < r; ++i) {
    double z = 0;
    for (std::int64_t k = 0; k < kColumns; ++k)
      z += (x[k].item<double>() - block.mean[at_of(k)]) * double{block.projection[at_of(k * r + i)]};
    value += z * double{block.reconstruction[at_of(i * kColumns + column)]};
  }
  return value;
}

/// The same of a plan of heads. x: [layers, D].
double of_heads(const PlannedBlock& block, const at::Tensor& x, std::int64_t layer, std::int64_t head,
                std::int64_t j) {
  for (std::size_t t = 0; t < block.targets.size(); ++t) {
    if (block.targets[t] != head) continue;
    double value = block.bias[t * kHeadSize + at_of(j)];
    for (std::int64_t i = 0; i < 2 * kHeadSize; ++i) {
      const std::int64_t slice = block.references[2 * t + at_of(i / kHeadSize)];
      if (slice >= 0)
        value += x[slice / kHeads][slice % kHeads * kHeadSize + i % kHeadSize].item<double>() *
                 double{block.map[(t * 2 * kHeadSize + at_of(i)) * kHeadSize + at_of(j)]};
    }
    return value;
  }
  return x[layer][head * kHeadSize + j].item<double>();  // a kept one
}

using Expected = std::function<double(Stream stream, std::int64_t layer, std::int64_t head, std::int64_t j)>;

const std::vector<CachedLayer>& layers_of(const CachePlan& shard, Stream stream) {
  return stream == Stream::k ? shard.keys : shard.values;
}

/// Reads every head of one stream on the shards of `own` heads each.
void expect_heads_of(Stream stream, const std::vector<CachePlan>& shards, std::int64_t own,
                     const Expected& expected) {
  const at::Tensor x = token();
  for (std::size_t s = 0; s < shards.size(); ++s) {
    const auto rank = static_cast<std::int64_t>(s);
    std::vector<at::Tensor> blocks;
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const CachedLayer& cached = layers_of(shards[s], stream)[at_of(layer)];
      blocks.push_back(stored(cached.block, x[layer], {rank * own, own}));
      for (std::size_t other = 0; cached.block.shared && other < shards.size(); ++other)
        if (other != s)
          blocks.back() = blocks.back() + stored(layers_of(shards[other], stream)[at_of(layer)].block,
                                                 x[layer], {static_cast<std::int64_t>(other) * own, own});
      const at::Tensor heads = read(cached, blocks);
      const std::int64_t first = shards[s].shared == SharedBlocks::sharded ? 0 : rank * own;
      ASSERT_EQ(heads.size(0), shards[s].shared == SharedBlocks::sharded ? kHeads : own);
      for (std::int64_t h = 0; h < heads.size(0); ++h)
        for (std::int64_t j = 0; j < kHeadSize; ++j)
          EXPECT_NEAR(heads[h][j].item<double>(), expected(stream, layer, first + h, j), 1e-12)
              << word_of(stream_words(), stream) << ", layer " << layer << ", head " << first + h;
    }
  }
}

/// Reads every head of both streams on shards of `own` heads each.
void expect_heads(const CompressionPlan& plan, SharedBlocks shared, std::int64_t own,
                  const Expected& expected) {
  std::vector<CachePlan> shards;
  for (std::int64_t first = 0; first < kHeads; first += own)
    shards.push_back(make_cache_plan(small_config(), plan, {first, own}, at::kDouble, shared, "plan.h5"));
  for (const Stream stream : {Stream::k, Stream::v}) expect_heads_of(stream, shards, own, expected);
}

/// On one rank, and on two with either way to share blocks.
void expect_everywhere(const CompressionPlan& plan, const Expected& expected) {
  expect_heads(plan, SharedBlocks::replicated, kHeads, expected);
  expect_heads(plan, SharedBlocks::replicated, kHeads / 2, expected);
  expect_heads(plan, SharedBlocks::sharded, kHeads / 2, expected);
}

TEST(CachePlan, OfLatentsReadsWhatThePlanLifts) {
  const ModelConfig config = small_config();
  const CompressionPlan plan = PlanMaker(config, "latent").make({{2, 8}, {3, 3}}, 0);

  expect_everywhere(plan, [&](Stream stream, std::int64_t layer, std::int64_t head, std::int64_t j) {
    return of_latents(plan.streams.at(stream)[at_of(layer)], token()[layer], head, j);
  });
}

TEST(CachePlan, OfNoLatentsReadsTheBias) {
  const ModelConfig config = small_config();
  const CompressionPlan plan = PlanMaker(config, "latent").make({}, 0);

  expect_everywhere(plan, [&](Stream stream, std::int64_t layer, std::int64_t head, std::int64_t j) {
    return plan.streams.at(stream)[at_of(layer)].bias[at_of(head * kHeadSize + j)];
  });
}

TEST(CachePlan, OfHeadsReadsReferencesOfEarlierLayersToo) {
  const ModelConfig config = small_config();
  const CompressionPlan plan = PlanMaker(config, "headspan").make({}, 0);

  expect_everywhere(plan, [&](Stream stream, std::int64_t layer, std::int64_t head, std::int64_t j) {
    return of_heads(plan.streams.at(stream)[at_of(layer)], token(), layer, head, j);
  });
}

TEST(CachePlan, ThatQuantisesStoresEveryHeadInGroupsOfThePlansWidth) {
  const ModelConfig config = small_config();
  const CompressionPlan plan =
      PlanMaker(config, "quantise")
          .make({{4, 4, Coding::range}, {4, 4, Coding::range}, {4, 4, Coding::range}}, 0);

  expect_heads(plan, SharedBlocks::replicated, kHeads,
               [&](Stream, std::int64_t layer, std::int64_t head, std::int64_t j) {
                 return token()[layer][head * kHeadSize + j].item<double>();
               });
  EXPECT_EQ(input_error_of([&] {
              make_cache_plan(config, plan, {2, 2}, at::kDouble, SharedBlocks::sharded, "plan.h5");
            }),
            "plan.h5: band_columns = 4: is a group of columns that two tensor-parallel ranks would have to "
            "share; give run.tensor_parallel = 1");
}

TEST(CachePlan, ThatQuantisesGivesARankTheGroupsOfItsHeads) {
  const ModelConfig config = small_config();
  const CompressionPlan plan =
      PlanMaker(config, "quantise")
          .make({{6, 8, Coding::range}, {2, 4, Coding::range}, {4, 3, Coding::range}}, 0);

  const CachePlan half = make_cache_plan(config, plan, {2, 2}, at::kDouble, SharedBlocks::sharded, "plan.h5");

  EXPECT_EQ(half.shared, SharedBlocks::replicated);  // there is nothing to share
  ASSERT_EQ(half.keys[0].block.bands.size(), 2U);
  EXPECT_EQ(half.keys[0].block.bands[0].columns, 2);
  EXPECT_EQ(half.keys[0].block.bands[0].bits, 4);
  EXPECT_EQ(half.keys[0].block.bands[1].columns, 4);
  EXPECT_EQ(half.keys[0].block.bands[1].bits, 3);
  EXPECT_EQ(half.keys[0].block.bands[1].coding, Coding::range);
}

TEST(CachePlan, LeavesAStreamThatThePlanDoesNotHaveAsItIs) {
  const ModelConfig config = small_config();
  CompressionPlan plan = PlanMaker(config, "latent").make({{2, 8}}, 3);
  plan.streams.erase(Stream::k);

  expect_everywhere(plan, [&](Stream stream, std::int64_t layer, std::int64_t head, std::int64_t j) {
    return stream == Stream::k ? token()[layer][head * kHeadSize + j].item<double>()
                               : of_latents(plan.streams.at(stream)[at_of(layer)], token()[layer], head, j);
  });
  EXPECT_EQ(make_cache_plan(config, plan, {0, kHeads}, at::kDouble, SharedBlocks::replicated, "plan.h5")
                .exact.first,
            3);
}

TEST(CachePlan, OfOneBlockLeavesAllOthersAsTheyAre) {
  const ModelConfig config = small_config();
  const CompressionPlan plan = PlanMaker(config, "latent").make({{2, 8}}, 3);

  const CachePlan cached = one_block_plan(config, plan, Stream::v, 1, {0, kHeads}, at::kDouble);

  for (std::size_t layer = 0; layer < at_of(kLayers); ++layer) {
    EXPECT_FALSE(cached.keys[layer].block.projection.defined());
    EXPECT_EQ(cached.values[layer].block.projection.defined(), layer == 1);
  }
  EXPECT_EQ(cached.exact.first, 3);
}

TEST(CachePlan, OfAnotherModelIsRefused) {
  const ModelConfig config = small_config();
  const CompressionPlan plan = PlanMaker(config, "latent").make({{2, 8}}, 0);
  ModelConfig other = config;
  other.kv_heads = 2;

  EXPECT_EQ(
      input_error_of([&] {
        make_cache_plan(other, plan, {0, 2}, at::kDouble, SharedBlocks::replicated, "plan.h5");
      }),
      "plan.h5: layers, kv_heads, head_size = 3, 4, 3: are not those of the model (3, 2, 3); give a plan "
      "that was calibrated on this model");
}

}  // namespace
}  // namespace headspan
