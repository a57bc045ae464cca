#include "app/compress/plan_rounded.h"

#include <algorithm>

#include "base/checked.h"

namespace headspan {
namespace {

constexpr int kHadamardBits = 4;            // where compress.bits says nothing
constexpr std::int64_t kBlockColumns = 32;  // of llama.cpp's types

/// How an algorithm rounds: each unit of columns in groups of at most some width.
struct Rounding {
  std::int64_t unit = 0, group = 0;
  int bits = 0;
  Coding coding = Coding::range;
};

Rounding rounding_of(const Job::Compress& rule, std::int64_t heads, std::int64_t d) {
  switch (rule.algorithm) {
    case CompressionAlgorithm::hadamard:
      return {d, d, rule.bits.width.value_or(kHadamardBits), Coding::normal};
    case CompressionAlgorithm::rotated_q4:
      return {d, kBlockColumns, 4, Coding::gguf};
    case CompressionAlgorithm::rotated_q8:
      return {d, kBlockColumns, 8, Coding::gguf};
    default:
      HS_ASSERT(rule.algorithm == CompressionAlgorithm::quantise);
      return {heads * d, std::min(heads, (64 + d - 1) / d) * d, *rule.bits.width, Coding::range};
  }
}

}  // namespace

PlannedStreams plan_rounded(const Job::Compress& rule, const ModelConfig& config) {
  const std::int64_t columns = config.kv_heads * config.head_size;
  const Rounding rounding = rounding_of(rule, config.kv_heads, config.head_size);
  PlannedBlock block;
  for (std::int64_t unit = 0; unit < columns; unit += rounding.unit)
    for (std::int64_t left = rounding.unit; left > 0; left -= rounding.group)
      block.bands.push_back({std::min(left, rounding.group), rounding.bits, rounding.coding});
  PlannedStreams planned;
  for (const Stream stream : rule.streams) planned[stream].assign(to_size(config.layers), block);
  return planned;
}

}  // namespace headspan
