#include "dist/kernels/byte_product.h"

#include <algorithm>
#include <cstring>
#include <numeric>
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

/// Bytes of a tile of tokens in some quads of terms: [count][kTokens] words of four bytes, and which quads.
struct Tile {
  const std::int32_t* words;
  const std::int32_t* quads;
  std::int64_t count;
};

/// Adds the products of a tile with a panel, [quads][kOutputs][4], to the sums.
template <bool Fused>
HS_INLINED inline void add_quads(const std::uint8_t* panel, const Tile& tile, Sums& sums) {
  const std::int32_t* x = tile.words;
  for (std::int64_t i = 0; i < tile.count; ++i, x += kTokens) {
    const std::uint8_t* const from = panel + tile.quads[i] * kQuad * kOutputs;
    Ints row[kVectors];
    std::memcpy(&row, from, sizeof row);
    __builtin_prefetch(from + 8 * sizeof row);
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Ints factor = Ints{} + x[t];
#pragma GCC unroll 3
      for (int v = 0; v < kVectors; ++v) add_bytes<Fused>(row[v], factor, sums[t][v]);
    }
  }
}

/// Bytes of tokens, cut into tiles.
class PackedBytes {
 public:
  PackedBytes(std::int64_t tokens, std::int64_t quads)
      : quads_of_tile_(quads),
        words_(static_cast<std::size_t>(rounded_up(tokens, kTokens) * quads)),
        quads_(words_.size() / kTokens),
        counts_(static_cast<std::size_t>(rounded_up(tokens, kTokens) / kTokens)) {}

  Tile tile(std::int64_t number) const {
    return {words_.data() + number * quads_of_tile_ * kTokens, quads_.data() + number * quads_of_tile_,
            counts_[static_cast<std::size_t>(number)]};
  }

  /// Adds a quad to a tile.
  void add(std::int64_t number, std::int64_t quad, const std::uint32_t (&words)[kTokens]) {
    const std::int64_t at = number * quads_of_tile_ + counts_[static_cast<std::size_t>(number)]++;
    quads_[static_cast<std::size_t>(at)] = static_cast<std::int32_t>(quad);
    std::memcpy(words_.data() + at * kTokens, &words, sizeof words);
  }

 private:
  std::int64_t quads_of_tile_;
  std::vector<std::int32_t> words_, quads_;
  std::vector<std::int64_t> counts_;
};

/// Returns bytes 0, 2, 4 and 6.
std::uint32_t even_bytes(std::uint64_t x) {
  x &= 0x00ff00ff00ff00ffu;
  x = (x | x >> 8) & 0x0000ffff0000ffffu;
  return static_cast<std::uint32_t>(x | x >> 16);
}

/// Returns the upper bytes of four 16-bit numbers, each rounded to the next multiple of 256: adding 128
/// carries into them, and not into the next number.
std::uint32_t upper_bytes(std::uint64_t four) {
  constexpr std::uint64_t kTop = 0x8000800080008000u, kHalf = 0x0080008000800080u;
  return even_bytes((((four & ~kTop) + kHalf) ^ (four & kTop)) >> 8);
}

/// x = 256 upper + lower, zeros beyond the edges; of the upper bytes only the quads in which a token of the
/// tile has any. And what the bias of the matrix's bytes adds to each token's sums.
struct Factors {
  Factors(const std::int16_t* x, std::int64_t tokens, std::int64_t terms)
      : upper(tokens, rounded_up(terms, kQuad) / kQuad),
        lower(tokens, rounded_up(terms, kQuad) / kQuad),
        bias(static_cast<std::size_t>(tokens)) {
    for (std::int64_t t = 0; t < tokens; ++t)
      bias[static_cast<std::size_t>(t)] =
          kBias * static_cast<std::uint32_t>(std::accumulate(x + t * terms, x + (t + 1) * terms, 0));
    for (std::int64_t t = 0; t < tokens; t += kTokens)
      for (std::int64_t i = 0; i < terms; i += kQuad) {
        std::uint64_t numbers[kTokens] = {};  // four of 16 bits each
        for (std::int64_t k = 0; k < std::min(kTokens, tokens - t); ++k)
          std::memcpy(&numbers[k], x + (t + k) * terms + i,
                      static_cast<std::size_t>(std::min(kQuad, terms - i)) * sizeof *x);
        add(t / kTokens, i / kQuad, numbers);
      }
  }

  void add(std::int64_t tile, std::int64_t quad, const std::uint64_t (&numbers)[kTokens]) {
    std::uint32_t low[kTokens], high[kTokens], any = 0;
    for (int k = 0; k < kTokens; ++k) {
      low[k] = even_bytes(numbers[k]);
      high[k] = upper_bytes(numbers[k]);
      any |= high[k];
    }
    lower.add(tile, quad, low);
    if (any != 0) upper.add(tile, quad, high);
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
        add_quads<Fused>(panels, x->upper.tile(token / kTokens), sums);
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t)
#pragma GCC unroll 3
          for (int v = 0; v < kVectors; ++v) sums[t][v] <<= 8;
        add_quads<Fused>(panels, x->lower.tile(token / kTokens), sums);
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

void ByteMatrix::multiply(const std::int16_t* x, const Shape& shape, std::int32_t* y, bool fused) const {
  const Factors factors(x, shape.tokens, shape.terms);
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
