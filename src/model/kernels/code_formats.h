// How kernels hold unpacked codes, and how they multiply them by the integers of another factor: as 16-bit
// integers, two in a word, on any processor (Pairs), or as bytes, four in a word (Quads). Both give the same
// sums, exactly. A part of quantized_gemm.cpp; everything here is inlined into a kernel that is compiled for
// one instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/byte_unpack.h"
#include "model/kernels/int16_unpack.h"

namespace headspan::code_formats {

using namespace int16_unpack;

/// Adds to every lane of `sum` the product of the lower halves of a and b and that of the upper halves.
/// `Fused`: in one instruction (AVX-512 VNNI).
template <int Lanes, bool Fused>
HS_INLINED inline void add_pairs(const Words<Lanes>& a, const Words<Lanes>& b, Ints<Lanes>& sum) {
#if HS_NAMED_INSTRUCTIONS
  typename Vector<Lanes>::Shorts shorts_a, shorts_b;
  load(&a, shorts_a);
  load(&b, shorts_b);
  if constexpr (Fused) {
    Ints<Lanes> ints_a, ints_b;
    load(&a, ints_a);
    load(&b, ints_b);
    sum = __builtin_ia32_vpdpwssd_v16si(sum, ints_a, ints_b);
  } else if constexpr (Lanes == 16)
    sum += __builtin_ia32_pmaddwd512_mask(shorts_a, shorts_b, Ints<16>{}, 0xffff);
  else if constexpr (Lanes == 8)
    sum += __builtin_ia32_pmaddwd256(shorts_a, shorts_b);
  else
    sum += __builtin_ia32_pmaddwd128(shorts_a, shorts_b);
#else
  Ints<Lanes> ints_a, ints_b;
  load(&a, ints_a);
  load(&b, ints_b);
  sum += (ints_a >> 16) * (ints_b >> 16) + (ints_a << 16 >> 16) * (ints_b << 16 >> 16);
#endif
}

/// Integers in words: [count, width], rows `leading` apart; `width` is a whole number of vectors.
struct WordMatrix {
  const std::uint32_t* words;
  std::int64_t leading, count, width;
};

/// Codes as 16-bit integers, two in a word, on any processor.
template <int Lanes, bool Fused>
struct Pairs {
  static constexpr int kLanes = Lanes, kVectors = Lanes / 4;
  static constexpr std::int64_t kInWord = 2, kWordsOfToken = kPairsOfToken;

  /// Returns for how many rows a processor has registers, if each row takes `vectors` vectors of sums.
  static constexpr int rows_with(int vectors) { return 8 * vectors <= Lanes ? 8 : 4; }

  template <int Bits>
  HS_INLINED static void unpack_columns(const RowStarts& rows, std::int64_t tokens, std::int64_t columns,
                                        std::uint32_t* words) {
    unpack_pairs_of_columns<Lanes, Bits>(rows, tokens, whole_groups(columns), words);
  }
  template <int Bits>
  HS_INLINED static void unpack_tokens(const RowStarts& rows, std::int64_t tokens, std::int64_t columns,
                                       std::uint32_t* words) {
    unpack_pairs_of_tokens<Lanes, Bits>(rows, tokens, columns, words);
  }

  /// Sets sums[m * Vectors + v] to the sum over i of x[m][i] times vector v, counted from lane `first`, of
  /// row i of z. Does not overflow 32 bits: a sum has at most 128 products below 2^15 * 2^7 each.
  template <int Rows, int Vectors>
  HS_INLINED static void sum(const std::uint32_t* const* x, std::int64_t /*low*/, const WordMatrix& z,
                             std::int64_t first, Ints<Lanes>* sums) {
    Ints<Lanes> partial[Rows * Vectors] = {};
    for (std::int64_t i = 0; i < z.count; ++i) {
      Words<Lanes> row[Vectors];
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) load(z.words + i * z.leading + first + v * Lanes, row[v]);
#pragma GCC unroll 4
      for (int m = 0; m < Rows; ++m) {
        const Words<Lanes> factor = Words<Lanes>{} + x[m][i];
#pragma GCC unroll 4
        for (int v = 0; v < Vectors; ++v) add_pairs<Lanes, Fused>(factor, row[v], partial[m * Vectors + v]);
      }
    }
    std::memcpy(sums, partial, sizeof partial);
  }
};

#if HS_NAMED_INSTRUCTIONS
/// Codes as signed bytes, four in a word. The integers of the other factor, plus 2^15, come as two unsigned
/// bytes: words of upper ones and, `low` words after them, of lower ones.
struct Quads {
  static constexpr int kLanes = 16, kVectors = 2;
  static constexpr std::int64_t kInWord = 4, kWordsOfToken = byte_unpack::kWordsOfQuad;

  static constexpr int rows_with(int /*vectors*/) { return 5; }

  template <int Bits>
  HS_INLINED static void unpack_columns(const RowStarts& rows, std::int64_t tokens, std::int64_t columns,
                                        std::uint32_t* words) {
    byte_unpack::unpack_quads_of_columns<Bits>(rows, tokens, columns, words);
  }
  template <int Bits>
  HS_INLINED static void unpack_tokens(const RowStarts& rows, std::int64_t tokens, std::int64_t columns,
                                       std::uint32_t* words) {
    byte_unpack::unpack_quads_of_tokens<Bits>(rows, tokens, columns, words);
  }

  /// As Pairs::sum; what 2^15 adds to each integer is taken off again. Sums may wrap around on the way.
  template <int Rows, int Vectors>
  HS_INLINED static void sum(const std::uint32_t* const* x, std::int64_t low, const WordMatrix& z,
                             std::int64_t first, Ints<16>* sums) {
    const Ints<16> ones = Ints<16>{} + 0x01010101;
    Words<16> upper[Rows * Vectors] = {}, lower[Rows * Vectors] = {}, codes[Vectors] = {};
    for (std::int64_t i = 0; i < z.count; ++i) {
      Ints<16> row[Vectors];
#pragma GCC unroll 2
      for (int v = 0; v < Vectors; ++v) {
        load(z.words + i * z.leading + first + v * 16, row[v]);
        add_quads(ones, row[v], codes[v]);
      }
#pragma GCC unroll 5
      for (int m = 0; m < Rows; ++m) {
        const auto high_factor = Ints<16>{} + static_cast<std::int32_t>(x[m][i]),
                   low_factor = Ints<16>{} + static_cast<std::int32_t>(x[m][low + i]);
#pragma GCC unroll 2
        for (int v = 0; v < Vectors; ++v) {
          add_quads(high_factor, row[v], upper[m * Vectors + v]);
          add_quads(low_factor, row[v], lower[m * Vectors + v]);
        }
      }
    }
    for (int i = 0; i < Rows * Vectors; ++i) {
      const Words<16> sum = (upper[i] << 8) + lower[i] - (codes[i % Vectors] << 15);
      load(&sum, sums[i]);
    }
  }

 private:
  /// Adds to every lane the products of the four unsigned bytes of a and the signed ones of b.
  HS_INLINED static void add_quads(const Ints<16>& a, const Ints<16>& b, Words<16>& sum) {
    Ints<16> total;
    load(&sum, total);
    total = __builtin_ia32_vpdpbusd_v16si(total, a, b);
    load(&total, sum);
  }
};
#endif

/// Calls use(m, first lane, sums of a vector) for `rows` rows of x times all lanes of z.
template <class Format, class Use>
HS_INLINED inline void for_each_sum(std::int64_t rows, const std::uint32_t* const* x, std::int64_t low,
                                    const WordMatrix& z, const Use& use) {
  constexpr int kLanes = Format::kLanes, kVectors = Format::kVectors;
  for (std::int64_t v = 0, taken; v < z.width / kLanes; v += taken) {
    taken = next_part(z.width / kLanes - v, kVectors);
    with_constant<kVectors>(taken, [&](auto vectors) HS_INLINED {
      constexpr int kAtATime = Format::rows_with(vectors);
      for (std::int64_t m = 0, height; m < rows; m += height) {
        height = next_part(rows - m, kAtATime);
        with_constant<kAtATime>(height, [&](auto own_rows) HS_INLINED {
          Ints<kLanes> sums[own_rows * vectors];
          Format::template sum<own_rows, vectors>(x + m, low, z, v * kLanes, sums);
          for (int i = 0; i < own_rows * vectors; ++i)
            use(m + i / vectors, (v + i % vectors) * kLanes, sums[i]);
        });
      }
    });
  }
}

}  // namespace headspan::code_formats
