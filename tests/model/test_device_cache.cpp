// A cache on a device, here on the CPU: against the host's, and against attention by its definition over the
// keys and values that the host's cache gives in place of the model's. Plans of every kind, prompts, pieces
// and single tokens of sequences of unequal length, on any number of tensor-parallel ranks.
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/range.h"
#include "model/cache/paged_cache.h"
#include "model/device_cache/device_cache.h"
#include "model/golden.h"
#include "model/plan_maker.h"
#include "support/input_error.h"

namespace headspan {
namespace {

constexpr std::int64_t kSequences = 4, kHeads = 24, kKvHeads = 12, kHeadSize = 4, kLayers = 2,
                       kColumns = kKvHeads * kHeadSize, kEnd = 3;

using Counts = std::vector<std::int64_t>;
const std::vector<Counts> kUnequal{{135, 3, 40, 20}, {1, 1, 1, 1}, {0, 2, 0, 1}, {1, 0, 1, 1}},
    kAlike{{9, 9, 9, 9}, {1, 1, 1, 1}, {1, 1, 1, 1}, {2, 2, 2, 2}},
    kShort{{1, 0, 2, 1}, {2, 1, 1, 1}, {1, 2, 1, 4}};

ModelConfig small_model() {
  ModelConfig config;
  config.layers = kLayers;
  config.heads = kHeads;
  config.kv_heads = kKvHeads;
  config.head_size = kHeadSize;
  config.attention.resize(kLayers);
  config.attention.back() = {5, 1.5};  // a window and a cap
  return config;
}

struct Case {
  std::string algorithm;  ///< "full": no plan
  std::vector<Band> bands;
  std::string only_stream;  ///< the other one is kept whole; empty: both follow the plan
};

/// Groups of columns, two or one for each rank: no two ranks share one.
std::vector<Band> whole_groups(int bits, Coding coding) {
  const std::int64_t groups = std::max(2, Comm::duplicate(MPI_COMM_WORLD).size());
  return std::vector<Band>(static_cast<std::size_t>(groups), {kColumns / groups, bits, coding});
}

std::vector<Case> cases() {
  return {{"full", {}, ""},
          {"latent", {{20, kPlainBits}}, ""},
          {"latent", {{3, 8}, {5, 6}, {0, 5}, {11, 3}, {9, 2}}, ""},
          {"latent", {{2, kPlainBits}, {13, 5}, {7, 4, Coding::range}}, "k"},
          {"latent", {}, ""},
          {"latent",
           {{3, 8, Coding::gain}, {11, 3, Coding::gain, 1, 1, true}, {9, 2, Coding::gain, 1, 1, true}},
           ""},
          {"quantise", whole_groups(4, Coding::range), ""},
          {"rotated-q4", whole_groups(4, Coding::gguf), ""},
          {"headspan", {}, ""},
          {"headspan", {}, "v"}};
}

/// What layers take of the first head of layer 0 they take of the last one, which lies behind it.
void refer_to_last(std::vector<PlannedBlock>& blocks) {
  for (auto block = blocks.begin() + 1; block != blocks.end(); ++block)
    std::replace(block->references.begin(), block->references.end(), std::int64_t{0}, kKvHeads - 1);
}

/// One way to hold the tokens of a rank, and what it is given.
struct Ranks {
  Dtype compute, plain;
  Layout layout{Comm::duplicate(MPI_COMM_WORLD).size()};
  ModelConfig config = small_model();
  Range own = range_of(kKvHeads, layout.tensor_parallel.size(), layout.tensor_parallel.rank());

  CacheTypes types() const { return {compute, plain}; }

  CachePlan plan(const Case& one, std::int64_t exact_first, std::int64_t exact_recent) const {
    CachePlan cached = full_plan(config, own);
    if (one.algorithm != "full") {
      CompressionPlan plan = PlanMaker(config, one.algorithm).make(one.bands, exact_first);
      if (!one.only_stream.empty()) plan.streams.erase(one.only_stream == "k" ? Stream::v : Stream::k);
      if (one.algorithm == "headspan" && !one.only_stream.empty())
        refer_to_last(plan.streams.at(*value_of(stream_words(), one.only_stream)));
      cached = make_cache_plan(config, plan, own, scalar_type(compute), SharedBlocks::replicated, "plan");
    }
    cached.exact.recent = exact_recent;
    cached.document_ends = {kEnd};
    return cached;
  }

  /// This rank's part of what all ranks draw alike.
  at::Tensor draw(std::int64_t tokens, std::int64_t group) const {
    return at::randn({tokens, kKvHeads * group, kHeadSize}, at::kDouble)
        .narrow(1, own.first * group, own.count * group)
        .to(scalar_type(plain))
        .contiguous();
  }
};

/// What a cache was given, token by token: [tokens, kv_heads, d] of each sequence.
struct Past {
  std::vector<at::Tensor> exact, decoded;  // [sequences]

  void add(const at::Tensor& x, const at::Tensor& replaced, const Counts& counts) {
    exact.resize(counts.size(), at::empty({0, x.size(1), x.size(2)}, at::kDouble));
    decoded.resize(counts.size(), exact.front());
    std::int64_t row = 0;
    for (std::size_t s = 0; s < counts.size(); row += counts[s++]) {
      exact[s] = at::cat({exact[s], x.narrow(0, row, counts[s]).to(at::kDouble)});
      decoded[s] = at::cat({decoded[s], replaced.narrow(0, row, counts[s]).to(at::kDouble)});
    }
  }

  /// What a query at `position` meets: [kv_heads, tokens, d].
  at::Tensor seen(std::size_t s, std::int64_t position, std::int64_t exact_recent) const {
    const std::int64_t all = position + 1, near = std::min(all, exact_recent);
    return at::cat({decoded[s].narrow(0, 0, all - near), exact[s].narrow(0, all - near, near)})
        .transpose(0, 1);
  }
};

at::Tensor defined_attention(const at::Tensor& q, const Past& keys, const Past& values, const Counts& counts,
                             std::int64_t exact_recent, const AttentionRule& rule) {
  std::vector<at::Tensor> rows;
  for (std::size_t s = 0, row = 0; s < counts.size(); ++s)
    for (std::int64_t i = 0; i < counts[s]; ++i, ++row) {
      const std::int64_t position = keys.exact[s].size(0) - counts[s] + i;
      const at::Tensor k = keys.seen(s, position, exact_recent), v = values.seen(s, position, exact_recent);
      const at::Tensor own =
          q[static_cast<std::int64_t>(row)].to(at::kDouble).view({k.size(0), -1, kHeadSize});
      at::Tensor scores = at::matmul(own, k.transpose(1, 2)) / std::sqrt(kHeadSize);
      if (rule.softcap > 0) scores = rule.softcap * at::tanh(scores / rule.softcap);
      const std::int64_t hidden = rule.window > 0 ? std::max<std::int64_t>(0, k.size(1) - rule.window) : 0;
      scores.narrow(2, 0, hidden).fill_(-INFINITY);
      const at::Tensor weights = at::softmax(scores, 2);
      rows.push_back(at::matmul(weights, v).flatten(0, 1));
    }
  return at::stack(rows);
}

/// Draws ids of new tokens, of which every sixth ends a document.
Counts draw_ids(const Counts& counts) {
  const at::Tensor ids =
      at::randint(6, {std::accumulate(counts.begin(), counts.end(), std::int64_t{0})}, at::kLong);
  return {ids.data_ptr<std::int64_t>(), ids.data_ptr<std::int64_t>() + ids.numel()};
}

struct Tolerance {
  double host, definition;
};

/// Feeds both caches the same tokens and holds one against the other after every layer.
void expect_the_hosts(const Ranks& ranks, const CachePlan& plan, const std::vector<Counts>& steps,
                      const Tolerance& tolerance, const std::string& name) {
  const DevicePlan on_device = make_device_plan(plan, scalar_type(ranks.compute), at::kCPU);
  DeviceCache cache(on_device, kSequences, ranks.types(), ranks.layout.tensor_parallel);
  PagedCache host(plan, kSequences, ranks.types(), ranks.layout.tensor_parallel);
  std::vector<Past> keys(kLayers), values(kLayers);
  at::manual_seed(11);
  for (const Counts& counts : steps) {
    const std::int64_t tokens = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
    const Counts ids = draw_ids(counts);
    cache.begin(ids, counts);
    host.begin(ids, counts);
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const at::Tensor q = ranks.draw(tokens, kHeads / kKvHeads), k = ranks.draw(tokens, 1),
                       v = ranks.draw(tokens, 1);
      const at::Tensor found = cache.attend(layer, q, k, v, counts),
                       said = host.attend(layer, q, k, v, counts);
      const auto l = static_cast<std::size_t>(layer);
      for (const Stream stream : {Stream::k, Stream::v}) {
        const at::Tensor decoded = host.decode_appended(stream, layer, counts);
        EXPECT_LE(relative_error(cache.decode_appended(stream, layer, counts), decoded), tolerance.host)
            << name;
        (stream == Stream::k ? keys : values)[l].add(stream == Stream::k ? k : v, decoded, counts);
      }

      EXPECT_EQ(found.scalar_type(), q.scalar_type());
      EXPECT_LE(relative_error(found, said), tolerance.host) << name << ", layer " << layer;
      EXPECT_LE(relative_error(found, defined_attention(q, keys[l], values[l], counts, plan.exact.recent,
                                                        plan.keys[l].attention)),
                tolerance.definition)
          << name << ", layer " << layer;
    }
    cache.advance(counts);
    host.advance(counts);
  }
  EXPECT_EQ(cache.lengths(), host.lengths());
}

void expect_the_hosts_in_all(const Ranks& ranks, const std::vector<Case>& all, const Tolerance& tolerance) {
  const std::vector<std::pair<std::int64_t, std::int64_t>> kept{{0, 0}, {5, 0}, {0, 4}, {5, 1}};
  for (const Case& one : all)
    for (const auto& [first, recent] : kept)
      for (const std::vector<Counts>* steps : {&kUnequal, &kAlike, &kShort})
        expect_the_hosts(ranks, ranks.plan(one, first, recent), *steps, tolerance,
                         one.algorithm + " of " + std::to_string(one.bands.size()) + " bands, only " +
                             one.only_stream + ", exact first " + std::to_string(first) + ", recent " +
                             std::to_string(recent) + ", steps from " + std::to_string(steps->front()[0]));
}

TEST(DeviceCache, gives_what_the_host_gives) {
  expect_the_hosts_in_all({Dtype::float64, Dtype::float64}, cases(), {1e-12, 1e-12});
}

TEST(DeviceCache, agrees_in_float32_to_its_rounding) {
  expect_the_hosts_in_all({Dtype::float32, Dtype::float32}, {cases()[0], cases()[1], cases()[7]},
                          {1e-5, 1e-5});
}

TEST(DeviceCache, multiplies_bfloat16_as_it_is) {
  expect_the_hosts_in_all({Dtype::float32, Dtype::bfloat16}, {cases()[0], cases()[1], cases()[3], cases()[7]},
                          {0.03, 0.03});
}

/// Long enough for scores of several tasks and codes of several pieces.
TEST(DeviceCache, takes_long_sequences_in_parts) {
  const Ranks ranks{Dtype::float64, Dtype::float64};
  if (ranks.own.count != kKvHeads) GTEST_SKIP() << "fewer heads: nothing to part";
  constexpr std::int64_t kMany = 16;
  const CachePlan plan = ranks.plan({"latent", {{13, 5, Coding::range}}, ""}, 0, 0);
  const DevicePlan on_device = make_device_plan(plan, at::kDouble, at::kCPU);
  DeviceCache cache(on_device, kMany, ranks.types(), ranks.layout.tensor_parallel);
  PagedCache host(plan, kMany, ranks.types(), ranks.layout.tensor_parallel);
  at::manual_seed(5);
  const Counts before(kMany, 20000);
  for (const Stream stream : {Stream::k, Stream::v}) {
    const at::Tensor x = ranks.draw(kMany * before[0], 1);
    cache.append(stream, 0, x, before);
    host.append(stream, 0, x, before);
  }
  cache.advance(before);
  host.advance(before);
  for (const std::int64_t tokens : {1, 4}) {
    const Counts counts(kMany, tokens);
    const at::Tensor q = ranks.draw(kMany * tokens, kHeads / kKvHeads), k = ranks.draw(kMany * tokens, 1);

    EXPECT_LE(relative_error(cache.attend(0, q, k, k, counts), host.attend(0, q, k, k, counts)), 1e-11);
    cache.advance(counts);
    host.advance(counts);
  }
}

TEST(DeviceCache, simulates_what_the_host_gives) {
  const Ranks ranks{Dtype::float64, Dtype::float64};
  for (const Case& one : cases()) {
    const CachePlan plan = ranks.plan(one, 5, 4);
    CachePlan full = full_plan(ranks.config, ranks.own);
    full.exact.recent = 4;
    const DevicePlan stored = make_device_plan(plan, at::kDouble, at::kCPU),
                     whole = make_device_plan(full, at::kDouble, at::kCPU);
    const auto make = [&](const DevicePlan& of) {
      return std::make_unique<DeviceCache>(of, kSequences, ranks.types(), ranks.layout.tensor_parallel);
    };
    PagedCache host(plan, kSequences, ranks.types(), ranks.layout.tensor_parallel);
    SimulatedCache simulated(make(stored), make(whole));
    at::manual_seed(3);
    for (const Counts& counts : kUnequal) {
      const std::int64_t tokens = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
      const Counts ids = draw_ids(counts);
      host.begin(ids, counts);
      simulated.begin(ids, counts);
      for (std::int64_t layer = 0; layer < kLayers; ++layer) {
        const at::Tensor q = ranks.draw(tokens, kHeads / kKvHeads), k = ranks.draw(tokens, 1),
                         v = ranks.draw(tokens, 1);

        EXPECT_LE(
            relative_error(simulated.attend(layer, q, k, v, counts), host.attend(layer, q, k, v, counts)),
            1e-12)
            << one.algorithm << ", layer " << layer;
      }
      host.advance(counts);
      simulated.advance(counts);
    }
  }
}

TEST(DeviceCache, stores_what_records_have) {
  const Ranks ranks{Dtype::float32, Dtype::float16};
  const Case mixed{"latent", {{2, kPlainBits}, {13, 5}, {7, 4, Coding::range}}, ""};
  const CachePlan plan = ranks.plan(mixed, 5, 4);
  const DevicePlan on_device = make_device_plan(plan, at::kFloat, at::kCPU);
  DeviceCache cache(on_device, kSequences, ranks.types(), ranks.layout.tensor_parallel);
  const std::int64_t d = ranks.own.count * kHeadSize, streams = 2 * kLayers;
  for (const std::int64_t tokens : {DeviceBlock::kTokens + 5, std::int64_t{1}}) {
    const Counts counts{tokens, 1, 1, 1};
    for (std::int64_t layer = 0; layer < kLayers; ++layer) {
      const at::Tensor x = ranks.draw(tokens + 3, 1);
      cache.attend(layer, ranks.draw(tokens + 3, 2), x, x, counts);
    }
    cache.advance(counts);

    const std::int64_t room = (tokens == 1 ? 2 : 1) * DeviceBlock::kTokens;
    const std::int64_t record = (2 * 2) + (2 + 9) + (4 + 4);
    EXPECT_EQ(record, RecordFormat(mixed.bands, Dtype::float16).bytes());
    EXPECT_EQ(cache.bytes().stored, streams * kSequences * room * record);
    EXPECT_EQ(cache.bytes().exact, streams * kSequences * (5 + 3) * d * 2);
  }
}

TEST(DeviceCache, refuses_what_only_the_host_stores) {
  const ModelConfig config = small_model();
  const std::map<std::string, Band> only_there{
      {"reads no plan of hadamard, whose levels are not evenly spaced", {kHeadSize, 4, Coding::normal}},
      {"reads no plan of kivi, which quantises tokens in groups",
       {kHeadSize, 4, Coding::range, kGroupTokens}}};
  for (const auto& [reason, band] : only_there) {
    const std::string algorithm = band.tokens > 1 ? "kivi" : "hadamard";
    const std::vector<Band> bands(kKvHeads, band);
    const CachePlan plan = make_cache_plan(config, PlanMaker(config, algorithm).make(bands, 0), {0, kKvHeads},
                                           at::kFloat, SharedBlocks::replicated, "plan");
    EXPECT_EQ(input_error_of([&] { make_device_plan(plan, at::kFloat, at::kCPU); }),
              "run.device = cuda: " + reason + "; leave it out");
  }
}

}  // namespace
}  // namespace headspan
