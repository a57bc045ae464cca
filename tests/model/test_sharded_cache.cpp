// Caches whose shared blocks are sharded over tensor-parallel ranks: against the simulated cache, which
// stores everything, and against replicated ones in what they allocate. Sequences span several pages.
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "app/run/cached_model.h"
#include "model/cache/block_pages.h"
#include "model/golden.h"
#include "model/plan_maker.h"

namespace headspan {
namespace {

constexpr std::int64_t kPage = BlockPages::kPageTokens;

int world_size() { return Comm::duplicate(MPI_COMM_WORLD).size(); }

/// A golden model over all ranks.
struct Shard {
  Layout layout{world_size()};
  ProcessLayout processes;
  ModelInput input;
  Transformer model;

  Shard(const std::string& name, Dtype dtype)
      : processes(layout.world, 1, layout.world.size(), std::nullopt),
        input(open_model({}, golden_folder(name), false, true)),
        model(Transformer::load(input.config, *input.checkpoint, {dtype, {input.config.layers, true}},
                                layout.tensor_parallel, layout.data_parallel)) {
    input.dtype = dtype;
  }
};

/// Whether each rank gets as many KV heads.
bool divides(const std::string& name) {
  return open_model({}, golden_folder(name), false, true).config.kv_heads % world_size() == 0;
}

/// Logits of sequences of `lengths`, fed to the cache in `steps` of each at a time, in the order of tokens.
at::Tensor fed_logits(const Transformer& model, KvCache& cache, const std::vector<std::int64_t>& lengths,
                      std::vector<std::int64_t> steps) {
  const std::int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  steps.push_back(longest);
  std::vector<std::vector<at::Tensor>> rows(lengths.size());
  for (std::size_t step = 0; step < steps.size(); ++step) {
    PackedBatch batch;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      const std::int64_t past = cache.lengths()[s];
      batch.lengths.push_back(std::min(steps[step], lengths[s] - past));
      for (std::int64_t t = past; t < past + batch.lengths.back(); ++t)
        batch.tokens.push_back((t * t + 7 * t * static_cast<std::int64_t>(s) + 3) %
                               model.config().vocab_size);
    }
    const at::Tensor logits = model.logits(model.hidden(batch, cache));
    std::int64_t row = 0;
    for (std::size_t s = 0; s < lengths.size(); ++s) {
      rows[s].push_back(logits.narrow(0, row, batch.lengths[s]));
      row += batch.lengths[s];
    }
  }
  std::vector<at::Tensor> parts;
  for (const auto& of_sequence : rows) parts.push_back(at::cat(of_sequence));
  return at::cat(parts);
}

struct Case {
  std::string algorithm;
  std::vector<Band> bands;
  bool both_streams;
};

std::vector<Case> cases(const ModelConfig& config, bool coded) {
  const std::int64_t half = config.kv_heads * config.head_size / 2;
  std::vector<Case> all{{"latent", {{half, kPlainBits}}, true},
                        {"latent", {{half, kPlainBits}}, false},
                        {"headspan", {}, true},
                        {"headspan", {}, false}};
  if (coded) all.push_back({"latent", {{2, 8}, {half / 2, 2}}, true});
  if (coded) all.push_back({"latent", with_gain({{2, 7}, {half / 2, 1}}), true});
  if (coded) all.push_back({"latent", {}, true});
  return all;
}

CompressionPlan plan_of(const ModelConfig& config, const Case& one, std::int64_t exact_first) {
  CompressionPlan plan = PlanMaker(config, one.algorithm).make(one.bands, exact_first);
  if (!one.both_streams) plan.streams.erase(Stream::v);
  return plan;
}

class ShardedCache : public testing::TestWithParam<std::string> {
 protected:
  const std::vector<std::int64_t> lengths_{5 * kPage + 9, 3, kPage + 1, 2 * kPage};

  /// The largest error against the simulated cache, of either way and for several ways to feed tokens.
  void expect_what_is_simulated(const Shard& shard, const Case& one, std::int64_t exact_first,
                                std::int64_t exact_recent, double tolerance) const {
    const CompressionPlan plan = plan_of(shard.input.config, one, exact_first);
    const std::vector<std::int64_t> ends{3, 12};
    const CachedModel replicated(shard.model, shard.input, shard.processes, plan,
                                 {"plan", exact_recent, SharedBlocks::replicated, ends}),
        sharded(shard.model, shard.input, shard.processes, plan,
                {"plan", exact_recent, SharedBlocks::sharded, ends});
    const auto simulated = replicated.make_cache(CacheKind::simulated, lengths_.size());
    const at::Tensor expected = fed_logits(shard.model, *simulated, lengths_, {});
    for (const auto& steps : std::vector<std::vector<std::int64_t>>{{}, {1, 1, 2 * kPage, 1, 2}})
      for (const CachedModel* way : {&replicated, &sharded}) {
        const auto cache = way->make_cache(CacheKind::compressed, lengths_.size());
        EXPECT_LE(relative_error(fed_logits(shard.model, *cache, lengths_, steps), expected), tolerance)
            << one.algorithm << ", " << (way == &sharded ? "sharded" : "replicated") << " over "
            << shard.layout.tensor_parallel.size() << " ranks, exact first " << exact_first << ", recent "
            << exact_recent << ", " << steps.size() << " steps, " << plan.streams.size() << " streams";
      }
  }
};

TEST_P(ShardedCache, is_what_the_simulated_one_says) {
  if (!divides(GetParam())) GTEST_SKIP() << "more ranks than KV heads";
  const Shard shard(GetParam(), Dtype::float64);
  for (const Case& one : cases(shard.input.config, true))
    for (const std::int64_t exact_first : {0, 2})
      for (const std::int64_t exact_recent : {0, 3})
        expect_what_is_simulated(shard, one, exact_first, exact_recent, 1e-10);
}

TEST_P(ShardedCache, agrees_in_float32_to_its_rounding) {
  if (!divides(GetParam())) GTEST_SKIP() << "more ranks than KV heads";
  const Shard shard(GetParam(), Dtype::float32);
  for (const Case& one : cases(shard.input.config, false))
    for (const std::int64_t exact_recent : {0, 3})
      expect_what_is_simulated(shard, one, 2, exact_recent, 1e-4);
}

INSTANTIATE_TEST_SUITE_P(Models, ShardedCache,
                         testing::Values("olmo2_mha", "llama_gqa", "qwen3_bias", "gpt_neox"),
                         [](const auto& info) { return info.param; });

TEST(ShardedCacheBytes, fall_with_the_ranks) {
  const std::vector<std::int64_t> stored{8 * kPage, 8 * kPage + 1, 2, 2, 2, 2};  // after the exact tokens
  constexpr std::int64_t kExact = 3, kPages = 8 + 9 + 4, kRecord = 2 * 5;
  const Shard shard("olmo2_mha", Dtype::bfloat16);
  const ModelConfig& config = shard.input.config;
  const CompressionPlan plan = PlanMaker(config, "latent").make({{5, kPlainBits}}, kExact);
  std::vector<std::int64_t> lengths;
  for (const std::int64_t length : stored) lengths.push_back(length + kExact);
  const std::int64_t streams = 2 * config.layers, page = kPage * kRecord, ranks = world_size();
  for (const SharedBlocks way : {SharedBlocks::replicated, SharedBlocks::sharded}) {
    const CachedModel model(shard.model, shard.input, shard.processes, plan, {"plan", 0, way});
    const auto cache = model.make_cache(CacheKind::compressed, lengths.size());
    fed_logits(shard.model, *cache, lengths, {});
    std::int64_t sum = cache->bytes().stored, exact = cache->bytes().exact;
    shard.layout.tensor_parallel.host().sum(&sum, 1);
    shard.layout.tensor_parallel.host().sum(&exact, 1);

    const bool sharded = way == SharedBlocks::sharded;
    EXPECT_EQ(sum, streams * kPages * page * (sharded ? 1 : ranks));
    EXPECT_LE(cache->bytes().stored, streams * (sharded ? (kPages + ranks - 1) / ranks : kPages) * page);
    EXPECT_EQ(exact, streams * 6 * kExact * config.kv_heads * config.head_size * 2);
  }
}

TEST(ShardedCacheBytes, choose_the_way) {
  const ModelConfig config = open_model({}, golden_folder("olmo2_mha"), false, true).config;
  const CompressionPlan plan = PlanMaker(config, "latent").make({{5, kPlainBits}}, 0);
  const double token = 2 * 2 * 5 * 4, maps = 2 * 2 * (5 * 32 + 32) * 4;  // streams, layers, columns, float32
  const auto choice = [&](int ranks, double tokens, double memory) {
    return choose_shared_blocks(plan, Dtype::float32, ranks, tokens, memory);
  };
  const double filled = 2 * (1000 * token + maps / 4);

  EXPECT_EQ(choice(4, 1000, filled + 1), SharedBlocks::replicated);
  EXPECT_EQ(choice(4, 1000, filled - 1), SharedBlocks::sharded);
  EXPECT_EQ(choice(1, 1000, 1), SharedBlocks::replicated) << "nothing is shared";
  EXPECT_EQ(choice(4, 10, 1), SharedBlocks::replicated) << "maps of all heads are more than the blocks";

  CompressionPlan quantised = PlanMaker(config, "quantise").make({{32, 4, Coding::range}}, 0);
  EXPECT_EQ(choose_shared_blocks(quantised, Dtype::float32, 4, 1000, 1), SharedBlocks::replicated);
}

TEST(PageShard, counts_the_tokens_of_its_pages) {
  for (const std::int64_t ranks : {1, 2, 3, 4})
    for (const std::int64_t tokens : {0, 1, 63, 64, 65, 300, 512, 1000})
      for (std::int64_t index = 0; index < ranks; ++index) {
        const PageShard shard{index, ranks};
        std::vector<std::int64_t> expected, found;
        for (std::int64_t token = 7; token < tokens; ++token)
          if (token / kPage % ranks == index) expected.push_back(token);
        shard.for_each_run(7, tokens, [&](std::int64_t first, std::int64_t count) {
          for (std::int64_t i = 0; i < count; ++i) found.push_back(first + i);
        });

        EXPECT_EQ(found, expected);
        EXPECT_EQ(shard.count(std::max<std::int64_t>(7, tokens)) - shard.count(7),
                  static_cast<std::int64_t>(expected.size()));
      }
}

}  // namespace
}  // namespace headspan
