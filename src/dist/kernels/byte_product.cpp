#include "dist/kernels/byte_product.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/process/cpu_dispatch.h"
#include "dist/kernels/register_tile.h"

namespace headspan {
namespace {

constexpr std::int64_t kQuad = 4;     // terms whose bytes are multiplied together
constexpr std::int64_t kTokens = 8;   // of a tile
constexpr std::uint32_t kBias = 128;  // added to the matrix's bytes, so that they are unsigned
constexpr int kVectors = 3;
constexpr std::int64_t kOutputs = kTileRowStep;  // of a tile: 24 of AVX-512's 32 vectors hold sums
static_assert(kOutputs == 16 * kVectors);

std::int64_t rounded_up(std::int64_t count, std::int64_t step) { return (count + step - 1) / step * step; }

typedef std::int32_t Ints __attribute__((vector_size(64)));
typedef std::uint32_t Words __attribute__((vector_size(64)));  // sums, which may wrap around
typedef Words Sums[kTokens][kVectors];

/// Adds to each lane of `sum` the products of its four bytes of a, unsigned, by those of b, signed.
template <bool Fused>
HS_INLINED inline void add_bytes(const Ints& a, const Ints& b, Words& sum) {
#if HS_NAMED_INSTRUCTIONS
  if constexpr (Fused) {
    sum = (Words)__builtin_ia32_vpdpbusd_v16si((Ints)sum, a, b);
    return;
  }
#endif
  for (int k = 0; k < kQuad; ++k) sum += (Words)(a >> 8 * k & 255) * (Words)(b << (24 - 8 * k) >> 24);
}

/// Adds the products of `quads` quads of terms to the sums. panel: [quads][kOutputs][4]; x: [quads][kTokens]
/// words of four bytes.
template <bool Fused>
HS_INLINED inline void add_quads(const std::uint8_t* panel, const std::int32_t* x, std::int64_t quads,
                                 Sums& sums) {
  for (std::int64_t q = 0; q < quads; ++q, panel += kQuad * kOutputs, x += kTokens) {
    Ints row[kVectors];
    std::memcpy(&row, panel, sizeof row);
    __builtin_prefetch(panel + 8 * sizeof row);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Ints factor = Ints{} + x[t];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) add_bytes<Fused>(row[v], factor, sums[t][v]);
    }
  }
}

/// The upper or the lower bytes of x, in tiles of tokens: [tiles][quads][kTokens] words; zeros at the edges.
class PackedBytes {
 public:
  PackedBytes(std::int64_t tokens, std::int64_t terms)
      : quads_((terms + kQuad - 1) / kQuad),
        words_(static_cast<std::size_t>(rounded_up(tokens, kTokens) * quads_)) {}

  std::int64_t quads() const { return quads_; }
  const std::int32_t* tile(std::int64_t token) const { return words_.data() + token * quads_; }

  /// Sets the bytes of four terms of a token.
  void set(std::int64_t token, std::int64_t quad, std::uint32_t bytes) {
    const std::int64_t first = token / kTokens * kTokens * quads_;
    words_[static_cast<std::size_t>(first + quad * kTokens + token % kTokens)] =
        static_cast<std::int32_t>(bytes);
  }

 private:
  std::int64_t quads_;
  std::vector<std::int32_t> words_;
};

/// x = 256 upper + lower, and what the bias of the matrix's bytes adds to each token's sums.
struct Factors {
  Factors(const std::int16_t* x, std::int64_t tokens, std::int64_t terms, std::int64_t wide)
      : upper(tokens, wide), lower(tokens, terms), bias(static_cast<std::size_t>(tokens)) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      const std::int16_t* const from = x + t * terms;
      int sum = 0;
      for (std::int64_t i = 0; i < terms; ++i) sum += from[i];
      bias[static_cast<std::size_t>(t)] = kBias * static_cast<std::uint32_t>(sum);
      const std::int64_t whole = terms / kQuad;
      for (std::int64_t quad = 0; quad < whole; ++quad) set(t, quad, from + quad * kQuad);
      if (whole == lower.quads()) continue;
      std::int16_t values[kQuad] = {};
      std::copy(from + whole * kQuad, from + terms, values);
      set(t, whole, values);
    }
  }

  /// Sets the bytes of four terms.
  void set(std::int64_t token, std::int64_t quad, const std::int16_t* values) {
    std::uint64_t four = 0;  // of 16 bits each; their lower bytes are brought together
    std::memcpy(&four, values, sizeof four);
    lower.set(token, quad, even_bytes(four));
    // Adding 128 to each carries into the upper bytes, and not into the next number.
    constexpr std::uint64_t kTop = 0x8000800080008000u, kHalf = 0x0080008000800080u;
    if (quad < upper.quads())
      upper.set(token, quad, even_bytes((((four & ~kTop) + kHalf) ^ (four & kTop)) >> 8));
  }

  /// Returns bytes 0, 2, 4 and 6.
  static std::uint32_t even_bytes(std::uint64_t x) {
    x &= 0x00ff00ff00ff00ffu;
    x = (x | x >> 8) & 0x0000ffff0000ffffu;
    return static_cast<std::uint32_t>(x | x >> 16);
  }

  PackedBytes upper, lower;
  std::vector<std::uint32_t> bias;
};

/// Where the products are: [tokens, outputs].
struct Products {
  std::int32_t* values;
  std::int64_t tokens, outputs;
};

struct MultiplyPanels {
  template <int Lanes, bool Fused = false>
  HS_INLINED static void run(const std::uint8_t* panels, std::int64_t panel_size, const Factors* x,
                             const Products* y) {
    for (std::int64_t first = 0; first < y->outputs; first += kOutputs, panels += panel_size)
      for (std::int64_t token = 0; token < y->tokens; token += kTokens) {
        Sums sums = {};
        add_quads<Fused>(panels, x->upper.tile(token), x->upper.quads(), sums);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 3
          for (int v = 0; v < kVectors; ++v) sums[t][v] <<= 8;
        add_quads<Fused>(panels, x->lower.tile(token), x->lower.quads(), sums);
        Words found[kTokens][kVectors];  // sums that a loop indexes would not stay in registers
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 3
          for (int v = 0; v < kVectors; ++v) found[t][v] = sums[t][v];
        const std::int64_t width = std::min(kOutputs, y->outputs - first);
        for (std::int64_t t = 0; t < std::min(kTokens, y->tokens - token); ++t) {
          const std::uint32_t bias = x->bias[static_cast<std::size_t>(token + t)];
          Words whole[kVectors];
          for (int v = 0; v < kVectors; ++v) whole[v] = found[t][v] - bias;
          std::memcpy(y->values + (token + t) * y->outputs + first, &whole,
                      static_cast<std::size_t>(width) * sizeof(std::int32_t));
        }
      }
  }
};

}  // namespace

bool has_byte_products() { return HS_NAMED_INSTRUCTIONS != 0 && has_vnni(); }

ByteMatrix::ByteMatrix(const std::int8_t* values, std::int64_t terms, std::int64_t outputs) : terms_(terms) {
  const std::int64_t panel_size = rounded_up(terms, kQuad) * kOutputs;
  const std::int64_t size = rounded_up(outputs, kOutputs) / kOutputs * panel_size;
  panels_.reserve(size);
  std::fill_n(panels_.data(), size, static_cast<std::uint8_t>(kBias));
  for (std::int64_t i = 0; i < terms; ++i)
    for (std::int64_t k = 0; k < outputs; ++k)
      panels_.data()[k / kOutputs * panel_size + i / kQuad * kQuad * kOutputs + k % kOutputs * kQuad +
                     i % kQuad] =
          static_cast<std::uint8_t>(values[i * outputs + k] + static_cast<int>(kBias));
}

void ByteMatrix::multiply(const std::int16_t* x, const Shape& shape, std::int64_t wide, std::int32_t* y,
                          bool fused) const {
  const Factors factors(x, shape.tokens, shape.terms, wide);
  const Products products{y, shape.tokens, shape.outputs};
  const std::int64_t panel_size = rounded_up(terms_, kQuad) * kOutputs;
  const std::uint8_t* const panels = panels_.data();
#if HS_SEVERAL_PROCESSORS
  if (fused) return run_with_vnni<MultiplyPanels>(panels, panel_size, &factors, &products);
#else
  static_cast<void>(fused);
#endif
  for_this_processor<MultiplyPanels>(panels, panel_size, &factors, &products);
}

}  // namespace headspan
