// One query of each of several sequences, by the kernels of a decode step, against the same queries by
// general products, which a cache takes where some sequence gets no query: two paths that share nothing but
// records.
#include <atomic>

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "model/cache/paged_cache.h"
#include "model/plan_maker.h"

namespace headspan {
namespace {

constexpr std::int64_t kHeads = 9, kKvHeads = 3, kHeadSize = 32, kEndOfDocument = 1;
const std::vector<std::int64_t> kLengths{2, 64, 70, 200, 129};  // around pages and exact tokens

ModelConfig config() {
  ModelConfig config;
  config.layers = 2;
  config.heads = kHeads;
  config.kv_heads = kKvHeads;
  config.head_size = kHeadSize;
  return config;
}

struct Case {
  std::string name, algorithm;
  std::vector<Band> bands;
  double tolerance;
};

std::vector<Band> three_of(const Band& band) { return {band, band, band}; }

/// Where nothing is coded the two differ by the rounding of float32, else by that of 16-bit integers, too:
/// 1e-4 of the terms of a sum is allowed, twice as much of the sum where the terms are all of one size and
/// cancel.
std::vector<Case> cases() {
  return {{"latents as they are", "latent", {{50, kPlainBits}}, 5e-6},
          {"latents in many bits", "latent", {{10, 8}, {30, 6}}, 1e-4},
          {"latents in few bits", "latent", {{20, 5}, {26, 4}, {33, 3}, {9, 2}}, 1e-4},
          {"latents of every kind", "latent", {{3, kPlainBits}, {9, 8}, {20, 4}, {7, 6}, {40, 3}}, 1e-4},
          {"latents in the fewest bits", "latent", {{6, 7}, {50, 1}}, 2e-4},
          {"latents with a gain", "latent", with_gain({{3, 8}, {4, 7}, {8, 5}, {20, 3}, {30, 1}}), 1e-4},
          {"heads, some of another layer", "headspan", {}, 5e-6},
          {"a group for each head", "quantise", three_of({32, 4, Coding::range}), 1e-4},
          {"groups across heads", "quantise", {{48, 4, Coding::range}, {48, 4, Coding::range}}, 5e-6},
          {"groups in 8 bits", "quantise", three_of({32, 8, Coding::range}), 1e-4},
          {"a part of the range", "oscar", three_of({32, 2, Coding::range, 1, 0.9}), 1e-4},
          {"levels of a normal distribution", "hadamard", three_of({32, 3, Coding::normal}), 1e-4},
          {"blocks of q4_0", "rotated-q4", three_of({32, 4, Coding::gguf}), 1e-4},
          {"blocks of q8_0", "rotated-q8", three_of({32, 8, Coding::gguf}), 1e-4},
          {"groups of tokens", "kivi", {{96, 4, Coding::range, kGroupTokens}}, 1e-4}};
}

struct Tokens {
  at::Tensor q, k, v;
};

/// Of every layer, for `counts` tokens of each sequence.
std::vector<Tokens> draw(std::int64_t layers, std::int64_t count) {
  std::vector<Tokens> all;
  for (std::int64_t layer = 0; layer < layers; ++layer)
    all.push_back({at::randn({count, kHeads, kHeadSize}), at::randn({count, kKvHeads, kHeadSize}),
                   at::randn({count, kKvHeads, kHeadSize})});
  return all;
}

/// What the queries of the last layer get. Every 37th token ends a document.
at::Tensor attend(KvCache& cache, const std::vector<Tokens>& tokens,
                  const std::vector<std::int64_t>& counts) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens[0].q.size(0)), 0);
  for (std::size_t i = 5; i < ids.size(); i += 37) ids[i] = kEndOfDocument;
  cache.begin(ids, counts);
  at::Tensor out;
  for (std::size_t layer = 0; layer < tokens.size(); ++layer)
    out = cache.attend(static_cast<std::int64_t>(layer), tokens[layer].q, tokens[layer].k, tokens[layer].v,
                       counts);
  cache.advance(counts);
  return out.to(at::kDouble);
}

double error_of(const at::Tensor& got, const at::Tensor& expected) {
  return ((got - expected).norm() / expected.norm()).item<double>();
}

/// How often ATen has formed the product by which the general path gathers values, on all threads. The
/// kernels of a step take none of ATen's.
std::atomic<int> general_products{0};

std::unique_ptr<at::ObserverContext> count_product(const at::RecordFunction& call) {
  if (std::string(call.name()) == "aten::addmm_") ++general_products;
  return nullptr;
}

class DecodeAttention : public testing::TestWithParam<AttentionRule> {};

TEST_P(DecodeAttention, is_what_general_products_give) {
  const auto world = make_device_comm(Comm::duplicate(MPI_COMM_WORLD), {});
  ModelConfig model = config();
  model.attention = {{}, GetParam()};
  const auto sequences = static_cast<std::int64_t>(kLengths.size());
  const CacheTypes types{Dtype::float32, Dtype::float32};
  const std::vector<std::int64_t> one(kLengths.size(), 1);
  std::vector<std::int64_t> lengths_and_none = kLengths, one_and_none = one;
  lengths_and_none.push_back(0);
  one_and_none.push_back(0);
  const at::CallbackHandle counting = at::addGlobalCallback(at::RecordFunctionCallback(count_product));
  for (const Case& chosen : cases())
    for (const std::int64_t exact_first : {0, 4})
      for (const std::int64_t exact_recent : {0, 3}) {
        at::manual_seed(1);
        CachePlan plan =
            make_cache_plan(model, PlanMaker(model, chosen.algorithm).make(chosen.bands, exact_first),
                            {0, kKvHeads}, at::kFloat, SharedBlocks::replicated, "");
        plan.exact.recent = exact_recent;
        plan.document_ends = {kEndOfDocument};
        PagedCache step(plan, sequences, types, *world), general(plan, sequences + 1, types, *world);
        const std::vector<Tokens> prompt = draw(model.layers, 2 + 64 + 70 + 200 + 129);
        attend(step, prompt, kLengths);
        attend(general, prompt, lengths_and_none);
        for (int i = 0; i < 3; ++i) {
          const std::vector<Tokens> next = draw(model.layers, sequences);
          general_products = 0;
          const at::Tensor own = attend(step, next, one);
          EXPECT_EQ(general_products, 0) << chosen.name;
          const at::Tensor expected = attend(general, next, one_and_none);
          EXPECT_GT(general_products, 0) << chosen.name;
          EXPECT_LE(error_of(own, expected), chosen.tolerance)
              << chosen.name << ", exact " << exact_first << ", " << exact_recent;
        }
      }
  at::removeCallback(counting);
}

// A window that ends within the first tokens, within a page and within the recent ones.
INSTANTIATE_TEST_SUITE_P(Rules, DecodeAttention,
                         testing::Values(AttentionRule{}, AttentionRule{2, 0}, AttentionRule{66, 0},
                                         AttentionRule{131, 1.5}));

}  // namespace
}  // namespace headspan
