#include "app/compress/plan_rounded.h"

#include <algorithm>

#include "base/checked.h"

namespace headspan {
namespace {

// Where compress.bits says nothing.
constexpr int kHadamardBits = 4, kKiviBits = 2, kOscarBits = 2;

// What OSCAR's server takes for keys and values.
constexpr double kOscarKeyClip = 0.96, kOscarValueClip = 0.92;

/// How an algorithm rounds a layer of a stream: each unit of columns in bands as wide as `band`, the last one
/// of a unit narrower.
struct Rounding {
  std::int64_t unit;
  Band band;
};

Rounding rounding_of(const Job::Compress& rule, Stream stream, std::int64_t heads, std::int64_t d) {
  constexpr std::int64_t kNarrow = 32;  // of llama.cpp's types, and of KIVI's values
  const std::int64_t all = heads * d;
  switch (rule.algorithm) {
    case CompressionAlgorithm::hadamard:
      return {d, {d, rule.bits.width.value_or(kHadamardBits), Coding::normal}};
    case CompressionAlgorithm::rotated_q4:
      return {d, {kNarrow, 4, Coding::gguf}};
    case CompressionAlgorithm::rotated_q8:
      return {d, {kNarrow, 8, Coding::gguf}};
    case CompressionAlgorithm::kivi: {
      const int bits = rule.bits.width.value_or(kKiviBits);
      if (stream == Stream::k) return {all, {all, bits, Coding::range, kGroupTokens}};
      return {d, {kNarrow, bits, Coding::range}};
    }
    case CompressionAlgorithm::oscar:
      return {d,
              {d, rule.bits.width.value_or(kOscarBits), Coding::range, 1,
               stream == Stream::k ? kOscarKeyClip : kOscarValueClip}};
    default:
      HS_ASSERT(rule.algorithm == CompressionAlgorithm::quantise);
      return {all, {std::min(heads, (64 + d - 1) / d) * d, *rule.bits.width, Coding::range}};
  }
}

}  // namespace

PlannedStreams plan_rounded(const Job::Compress& rule, const ModelConfig& config) {
  PlannedStreams planned;
  for (const Stream stream : rule.streams) {
    const Rounding rounding = rounding_of(rule, stream, config.kv_heads, config.head_size);
    PlannedBlock block;
    for (std::int64_t unit = 0; unit < config.kv_heads * config.head_size; unit += rounding.unit)
      for (std::int64_t left = rounding.unit; left > 0; left -= rounding.band.columns) {
        block.bands.push_back(rounding.band);
        block.bands.back().columns = std::min(left, rounding.band.columns);
      }
    planned[stream].assign(to_size(config.layers), block);
  }
  return planned;
}

}  // namespace headspan
