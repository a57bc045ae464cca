// Resident memory of a long decode: it grows by what the stored bytes of a token say, for a full cache and
// for compressed ones.
#include <fstream>

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include "model/cache/paged_cache.h"

namespace headspan {
namespace {

constexpr std::int64_t kLayers = 2, kHeads = 16, kHeadSize = 64, kSequences = 2,
                       kColumns = kHeads * kHeadSize;
constexpr std::int64_t kWarmUp = 132, kTokens = 16384;  // whole pages behind 4 exact tokens
constexpr double kTolerance = 0.05;

/// Without what is free but was not given back.
std::int64_t resident_bytes() {
  malloc_trim(0);
  std::int64_t total = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

CachePlan plan_of(const StoredBlock& block) {
  CachedLayer layer;
  layer.kv_heads = kHeads;
  layer.block = block;
  CachePlan plan;
  plan.keys = plan.values = std::vector<CachedLayer>(kLayers, layer);
  plan.head_size = kHeadSize;
  plan.exact.first = kWarmUp % BlockPages::kPageTokens;
  return plan;
}

/// `tokens` more of each sequence, `step` at a time.
void decode(PagedCache& cache, std::int64_t tokens, std::int64_t step) {
  const at::Tensor x = at::randn({kSequences * step, kHeads, kHeadSize});
  const std::vector<std::int64_t> counts(kSequences, step);
  for (std::int64_t token = 0; token < tokens; token += step) {
    for (std::int64_t layer = 0; layer < kLayers; ++layer)
      for (const Stream stream : {Stream::k, Stream::v}) cache.append(stream, layer, x, counts);
    cache.advance(counts);
  }
}

struct Case {
  std::string name;
  StoredBlock block;
  std::int64_t bytes;           // of a token in one layer and stream
  std::int64_t page_bytes = 0;  // of 64 tokens besides
};

std::vector<Case> cases() {
  StoredBlock full, latents, kept;
  full.bands = {{kColumns, kPlainBits}};
  latents.bands = {{128, 8}, {256, 4}, {128, 2}};
  latents.mean = at::zeros({kColumns});
  latents.projection = at::randn({kColumns, 128 + 256 + 128});
  kept.bands = {{6 * kHeadSize, kPlainBits}};
  kept.kept = std::vector<std::int64_t>{0, 3, 4, 9, 10, 15};
  return {{"full", full, 2 * 1024},
          {"latents", latents, (128 + 2) + (256 / 2 + 2) + (128 / 4 + 2), 8},
          {"heads", kept, 2 * 6 * 64}};
}

TEST(CacheMemory, of_a_long_decode_grows_by_what_a_token_stores) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory grows too";
#endif
  const auto world = make_device_comm(Comm::duplicate(MPI_COMM_WORLD), {});
  at::manual_seed(1);
  for (const Case& one : cases()) {
    const CachePlan plan = plan_of(one.block);
    PagedCache cache(plan, kSequences, CacheTypes{Dtype::float32, Dtype::bfloat16}, *world);
    decode(cache, kWarmUp, kWarmUp);
    const std::int64_t stored = cache.bytes().stored, resident = resident_bytes();

    decode(cache, kTokens, 1);

    const std::int64_t pages = kTokens / 64;
    const std::int64_t bytes = kSequences * kLayers * 2 * (kTokens * one.bytes + pages * one.page_bytes);
    const auto expected = static_cast<double>(bytes);
    EXPECT_EQ(cache.bytes().stored - stored, bytes) << one.name;
    EXPECT_NEAR(static_cast<double>(resident_bytes() - resident) / expected, 1, kTolerance) << one.name;
  }
}

}  // namespace
}  // namespace headspan
