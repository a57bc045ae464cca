// KV caches: a full one against transformers' golden logits, and a compressed one against the simulated one,
// which stores everything. Whole prompts, pieces of them and single tokens; on every way to lay out the
// ranks.
#include <gtest/gtest.h>

#include "app/run/cached_model.h"
#include "model/forward/inference.h"
#include "model/golden.h"
#include "model/plan_maker.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

class KvCacheGolden : public testing::TestWithParam<std::string> {
 protected:
  const std::string folder_ = golden_folder(GetParam());
  ModelInput input_ = open_model({}, folder_, false, true);
  const Golden golden_{GetParam()};

  std::vector<std::vector<std::int64_t>> sequences() const {
    std::vector<std::vector<std::int64_t>> all;
    auto token = golden_.batch.tokens.begin();
    for (const std::int64_t length : golden_.batch.lengths) {
      all.emplace_back(token, token + length);
      token += length;
    }
    return all;
  }

  /// The logits of all tokens, fed `pieces` tokens at a time to each sequence, in turn; the rest at once.
  at::Tensor fed_logits(const Transformer& model, KvCache& cache,
                        const std::vector<std::int64_t>& pieces) const {
    const auto all = sequences();
    std::vector<std::vector<at::Tensor>> rows(all.size());
    std::vector<std::int64_t> done(all.size(), 0);
    for (std::size_t step = 0; step <= pieces.size(); ++step) {
      PackedBatch batch;
      for (std::size_t s = 0; s < all.size(); ++s) {
        const auto left = static_cast<std::int64_t>(all[s].size()) - done[s];
        const std::int64_t count = step < pieces.size() ? std::min(left, pieces[step]) : left;
        batch.lengths.push_back(count);
        batch.tokens.insert(batch.tokens.end(), all[s].begin() + done[s], all[s].begin() + done[s] + count);
        done[s] += count;
      }
      const at::Tensor logits = model.logits(model.hidden(batch, cache));
      std::int64_t row = 0;
      for (std::size_t s = 0; s < all.size(); ++s) {
        rows[s].push_back(logits.narrow(0, row, batch.lengths[s]));
        row += batch.lengths[s];
      }
    }
    std::vector<at::Tensor> parts;
    for (const auto& of_sequence : rows) parts.push_back(at::cat(of_sequence));
    return at::cat(parts);
  }

  Transformer load(const Layout& layout, Dtype dtype) {
    input_.dtype = dtype;
    return Transformer::load(input_.config, *input_.checkpoint, {dtype, {input_.config.layers, true}},
                             layout.tensor_parallel, layout.data_parallel);
  }
};

const std::vector<std::vector<std::int64_t>> kPieces{{}, {1, 1, 1}, {3, 2}};

TEST_P(KvCacheGolden, a_full_cache_gives_the_logits_of_transformers) {
  for (const int size : {1, 2, 4}) {
    const Comm world = Comm::duplicate(MPI_COMM_WORLD);
    if (world.size() % size != 0 || input_.config.kv_heads % size != 0) continue;
    const Layout layout(size);
    const ProcessLayout processes(world, 1, size, std::nullopt);
    const Transformer model = load(layout, Dtype::float64);
    const CachedModel cached(model, input_, processes);
    for (const auto& pieces : kPieces) {
      const auto cache = cached.make_cache(CacheKind::full, golden_.batch.lengths.size());

      EXPECT_LE(relative_error(fed_logits(model, *cache, pieces), golden_["float64/logits"]), 1e-12);
      EXPECT_EQ(cache->lengths(), golden_.batch.lengths);
    }
  }
}

/// Returns bands like `group`, in which each head of d columns begins a new one.
std::vector<Band> in_groups(std::int64_t columns, std::int64_t d, const Band& group) {
  std::vector<Band> bands;
  for (std::int64_t head = 0; head < columns; head += d)
    for (std::int64_t left = d; left > 0; left -= group.columns)
      bands.push_back({std::min(left, group.columns), group.bits, group.coding, 1, group.clip});
  return bands;
}

struct Case {
  std::string algorithm;
  std::vector<Band> keys, values;
};

/// Plans of every algorithm that rounds, with groups as long as a head and shorter, and of `latent` with a
/// gain.
std::vector<Case> rounded(std::int64_t all, std::int64_t d) {
  const auto both = [](const std::string& algorithm, const std::vector<Band>& bands) {
    return Case{algorithm, bands, bands};
  };
  return {both("latent", with_gain({{1, 8}, {2, 7}, {3, 4}, {all / 4, 1}})),
          both("quantise", in_groups(all, d, {d, 4, Coding::range})),
          both("hadamard", in_groups(all, d, {d, 3, Coding::normal})),
          both("rotated-q4", in_groups(all, d, {3, 4, Coding::gguf})),
          both("rotated-q8", in_groups(all, d, {5, 8, Coding::gguf})),
          {"kivi", {{all, 2, Coding::range, 4}}, in_groups(all, d, {3, 2, Coding::range})},
          both("oscar", in_groups(all, d, {d, 2, Coding::range, 1, 0.9}))};
}

TEST_P(KvCacheGolden, a_compressed_cache_is_what_the_simulated_one_says) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const std::int64_t d = input_.config.head_size, all = input_.config.kv_heads * d;
  const std::vector<Band> bands{{2, 8}, {1, 7}, {3, 4}, {all / 4, 2}, {1, 1}}, plain{{all / 2, kPlainBits}};
  std::vector<Case> cases = rounded(all, d);
  for (const auto& latent : {bands, plain, std::vector<Band>{}}) cases.push_back({"latent", latent, latent});
  cases.push_back({"headspan", {}, {}});
  for (const int size : {1, 2}) {
    if (world.size() % size != 0 || input_.config.kv_heads % size != 0) continue;
    const Layout layout(size);
    const ProcessLayout processes(world, 1, size, std::nullopt);
    const Transformer model = load(layout, Dtype::float64);
    for (const Case& one : cases)
      for (const std::int64_t exact_first : {0, 2})
        for (const std::int64_t exact_recent : {0, 3}) {
          const CompressionPlan plan =
              PlanMaker(input_.config, one.algorithm).make(one.keys, one.values, exact_first);
          const CachedModel cached(
              model, input_, processes, plan,
              {"plan", exact_recent, SharedBlocks::replicated, {golden_.batch.tokens[3]}});
          const std::size_t count = golden_.batch.lengths.size();
          const auto simulated = cached.make_cache(CacheKind::simulated, count);
          const at::Tensor expected = fed_logits(model, *simulated, {});

          EXPECT_GT(relative_error(expected, golden_["float64/logits"]), 1e-6) << "the plan does something";
          for (const auto& pieces : kPieces) {
            const auto cache = cached.make_cache(CacheKind::compressed, count);
            EXPECT_LE(relative_error(fed_logits(model, *cache, pieces), expected), 1e-11)
                << one.algorithm << ", exact first " << exact_first << ", recent " << exact_recent
                << ", tensor parallel " << size;
          }
        }
  }
}

TEST_P(KvCacheGolden, tensor_parallel_ranks_say_what_one_rank_says) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  if (world.size() % 2 != 0 || input_.config.kv_heads % 2 != 0)
    GTEST_SKIP() << "no two ranks can share the heads";
  const std::int64_t d = input_.config.head_size, all = input_.config.kv_heads * d;
  const std::vector<Band> plain{{all / 2, kPlainBits}};
  std::vector<Case> cases = rounded(all, d);
  cases.push_back({"latent", plain, plain});
  cases.push_back({"headspan", {}, {}});
  for (const auto& [algorithm, keys, values] : cases) {
    const CompressionPlan plan = PlanMaker(input_.config, algorithm).make(keys, values, 1);
    std::vector<at::Tensor> logits;
    for (const int size : {1, 2}) {
      const Layout layout(size);
      const ProcessLayout processes(world, 1, size, std::nullopt);
      const Transformer model = load(layout, Dtype::float64);
      const CachedModel cached(model, input_, processes, plan, {"plan"});
      const auto cache = cached.make_cache(CacheKind::compressed, golden_.batch.lengths.size());
      logits.push_back(fed_logits(model, *cache, {2}));
    }
    EXPECT_LE(relative_error(logits[1], logits[0]), 1e-11) << algorithm;
  }
}

TEST_P(KvCacheGolden, in_float32_both_agree_to_its_rounding) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Layout layout(1);
  const ProcessLayout processes(world, 1, 1, std::nullopt);
  const Transformer model = load(layout, Dtype::float32), exact = load(layout, Dtype::float64);
  const std::int64_t all = input_.config.kv_heads * input_.config.head_size;
  const CompressionPlan plan = PlanMaker(input_.config, "latent").make({{all / 2, kPlainBits}}, 2);
  const CachedModel cached(model, input_, processes, plan, {"plan"}),
      exact_cached(exact, input_, processes, plan, {"plan"});
  const std::size_t count = golden_.batch.lengths.size();
  const auto simulated = cached.make_cache(CacheKind::simulated, count),
             compressed = cached.make_cache(CacheKind::compressed, count),
             reference = exact_cached.make_cache(CacheKind::simulated, count);

  const at::Tensor found = fed_logits(model, *compressed, {3}), expected = fed_logits(model, *simulated, {}),
                   wanted = fed_logits(exact, *reference, {});

  const double rounding = relative_error(expected, wanted);
  EXPECT_LT(rounding, 1e-4);
  EXPECT_LE(relative_error(found, wanted), std::max(3 * rounding, 1e-6)) << "the other's is " << rounding;
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  EXPECT_LT(compressed->bytes().stored, simulated->bytes().stored) << "both caches are the same";
}

INSTANTIATE_TEST_SUITE_P(Models, KvCacheGolden,
                         testing::Values("olmo2_mha", "olmo2_gqa", "llama_gqa", "falcon3", "qwen3_bias",
                                         "olmo", "olmo3", "smollm3", "seed_oss", "mistral_window", "gpt_neox",
                                         "phi3", "gemma2", "gemma3"),
                         [](const auto& info) { return info.param; });

TEST(KvCache, allocates_pages_of_stored_columns_only) {
  const Comm world = Comm::duplicate(MPI_COMM_WORLD);
  const Layout layout(1);
  const ProcessLayout processes(world, 1, 1, std::nullopt);
  ModelInput input = open_model({}, golden_folder("olmo2_mha"), false, true);
  input.dtype = Dtype::bfloat16;
  const ModelConfig& config = input.config;
  const Transformer model =
      Transformer::random(config, 1, {input.dtype, {config.layers, true}}, layout.tensor_parallel);
  const CompressionPlan plan = PlanMaker(config, "latent").make({{5, 4}}, 3);
  const CachedModel cached(model, input, processes, plan, {"plan"});
  const auto cache = cached.make_cache(CacheKind::compressed, 2),
             full = cached.make_cache(CacheKind::full, 2);
  const std::vector<std::vector<std::int64_t>> tokens{std::vector<std::int64_t>(67, 1),
                                                      std::vector<std::int64_t>(68, 2)};
  next_tokens(model, tokens, *cache);
  next_tokens(model, tokens, *full);

  const std::int64_t d = config.kv_heads * config.head_size, layers = 2 * config.layers;
  EXPECT_EQ(cache->bytes().stored,
            layers * (1 + 2) * (64 * (2 + 3) + 8));  // 64 and 65 tokens behind the exact ones
  EXPECT_EQ(cache->bytes().exact, layers * 2 * 3 * d * 2);
  EXPECT_EQ(full->bytes().stored, layers * (2 + 2) * 64 * d * 2);
  EXPECT_EQ(full->bytes().exact, 0);
}

}  // namespace
}  // namespace headspan
