// Unpacks codes of few bits to 16-bit integers, two in a word, because processors have instructions that
// multiply and add pairs of them. A part of quantized_gemm.cpp. A vector of words holds one pair of columns
// for neighbouring tokens, or one pair of tokens for neighbouring columns. Everything here is inlined into a
// kernel that is compiled for one instruction set.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/quantized_block.h"
#include "model/kernels/vectors.h"

namespace headspan::int16_unpack {

using namespace simd;

constexpr std::int64_t kColumns = 128;                 // unpacked at a time
constexpr std::int64_t kPairsOfToken = kColumns + 32;  // whole vectors are written behind the last column
constexpr std::int64_t kGroup = 8;                     // codes that fill whole bytes

inline std::int64_t whole_groups(std::int64_t columns) { return (columns + kGroup - 1) / kGroup * kGroup; }

/// Prefetches section s's share of the next bytes. A processor can wait for only a few cache lines at a time,
/// so that it computes between the shares.
HS_INLINED inline void prefetch_share(const QuantizedBlock& z, int s) {
  for (std::int64_t i = z.next_lines * s / z.count; i < z.next_lines * (s + 1) / z.count; ++i)
    __builtin_prefetch(z.next + i * kCacheLine);
}

/// The addresses of codes first .. first + count of each row; `first` fills whole bytes. At least kSlack
/// bytes after the codes can be read: to make sure of that, the last rows are copied. Rows after the last one
/// have the address of the last one.
class RowStarts {
 public:
  HS_INLINED RowStarts(const CodedRows& codes, std::int64_t first, std::int64_t count) {
    const std::uint8_t* const start = codes.codes + first / kGroup * codes.bits;
    for (std::int64_t row = 0; row < kQuantizedTokens; ++row) rows_[row] = start + row * codes.stride;
    const std::int64_t last = codes.rows - 1;
    const auto bytes = static_cast<std::size_t>((count * codes.bits + 7) / 8);
    for (std::int64_t row = std::max<std::int64_t>(0, last - (kSlack - 1) / codes.stride), i = 0; row <= last;
         ++row, ++i) {
      std::memcpy(copies_[i], rows_[row], bytes);
      rows_[row] = copies_[i];
    }
    for (std::int64_t row = last + 1; row < kQuantizedTokens; ++row) rows_[row] = rows_[last];
  }
  RowStarts(const RowStarts&) = delete;
  RowStarts& operator=(const RowStarts&) = delete;

  HS_INLINED const std::uint8_t* operator[](std::int64_t row) const { return rows_[row]; }

 private:
  static constexpr std::int64_t kSlack = 56, kLeastStride = 3;  // a scale and one byte
  const std::uint8_t* rows_[kQuantizedTokens];
  std::uint8_t copies_[(kSlack + kLeastStride - 1) / kLeastStride]
                      [kColumns + kSlack];  // codes have 8 bits at most
};

/// Calls use(bits, rows, count, to) for each part of columns begin .. begin + columns of z that lies in one
/// section: `count` columns in rows from `to` on, counted from `begin`. Prefetches what is read next.
template <class Use>
HS_INLINED inline void for_each_section(const QuantizedBlock& z, std::int64_t begin, std::int64_t columns,
                                        const Use& use) {
  std::int64_t at = 0;
  for (int s = 0; s < z.count; at += z.sections[s++].count) {
    const CodedRows& section = z.sections[s];
    const std::int64_t first = std::max<std::int64_t>(0, begin - at),
                       count = std::min(section.count, begin + columns - at) - first;
    if (count <= 0) continue;
    if (first == 0) prefetch_share(z, s);
    const RowStarts rows(section, first, count);
    with_bits(section.bits, [&](auto bits) HS_INLINED { use(bits, rows, count, at + first - begin); });
  }
}

constexpr int kPart = 16;  // bytes of a part of a vector: instructions within a part are the fastest

/// Loads part i of `to` from starts[i].
template <int Lanes>
HS_INLINED inline void load_parts(const std::uint8_t* const* starts, Bytes<Lanes>& to) {
#if HS_NAMED_INSTRUCTIONS
  if constexpr (Lanes == 16) {
    Ints<4> parts[4];
    Ints<16> all = {};
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) load(starts[i], parts[i]);
    all = __builtin_ia32_inserti32x4_mask(all, parts[0], 0, all, 0xffff);
    all = __builtin_ia32_inserti32x4_mask(all, parts[1], 1, all, 0xffff);
    all = __builtin_ia32_inserti32x4_mask(all, parts[2], 2, all, 0xffff);
    all = __builtin_ia32_inserti32x4_mask(all, parts[3], 3, all, 0xffff);
    return load(&all, to);
  } else if constexpr (Lanes == 8) {
    typedef long long Pair __attribute__((vector_size(16)));
    typedef long long Four __attribute__((vector_size(32)));
    Pair parts[2];
    load(starts[0], parts[0]);
    load(starts[1], parts[1]);
    Four all = {};
    all = __builtin_ia32_insert128i256(all, parts[0], 0);
    all = __builtin_ia32_insert128i256(all, parts[1], 1);
    return load(&all, to);
  }
#endif
  for (int i = 0; i < Lanes / 4; ++i) std::memcpy(reinterpret_cast<char*>(&to) + i * kPart, starts[i], kPart);
}

/// Sets 16-bit integer i of `to` to the code that begins at bit Layout::bit(i) of that integer's part, minus
/// 2^(Bits - 1), so that codes lie around zero.
template <int Lanes, int Bits, class Layout, int... Byte, int... Integer>
HS_INLINED inline void expand(const Bytes<Lanes>& bytes, std::integer_sequence<int, Byte...> /*bytes*/,
                              std::integer_sequence<int, Integer...> /*integers*/, Codes<Lanes>& to) {
  using Order =
      std::integer_sequence<int, Byte / kPart * kPart + (Layout::bit(Byte / 2) / 8 + Byte % 2) % kPart...>;
  constexpr Codes<Lanes> kUp = {static_cast<std::uint16_t>(1 << (16 - Bits - Layout::bit(Integer) % 8))...};
  Bytes<Lanes> pairs;
  shuffle(bytes, bytes, Order(), pairs);
  load(&pairs, to);
  to = (to * kUp >> (16 - Bits)) - (1 << (Bits - 1));
}

template <int Lanes, int Bits, class Layout>
HS_INLINED inline void expand(const Bytes<Lanes>& bytes, Codes<Lanes>& to) {
  expand<Lanes, Bits, Layout>(bytes, std::make_integer_sequence<int, 4 * Lanes>(),
                              std::make_integer_sequence<int, 2 * Lanes>(), to);
}

/// Returns which element of a followed by b becomes element i of an interleaved vector of `count` elements.
constexpr int interleaved(int i, int count, int width, bool upper, int block) {
  const int in_block = i % block, from_b = in_block / width % 2;
  const int source = (upper ? block / 2 : 0) + in_block / (2 * width) * width + in_block % width;
  return from_b * count + i / block * block + source;
}

/// Takes `Width` elements of a and of b in turn, from the lower or upper half of every `Block` elements.
template <int Width, bool Upper, int Block, class V, int... I>
HS_INLINED inline void interleave(const V& a, const V& b, std::integer_sequence<int, I...> /*elements*/,
                                  V& to) {
  shuffle(a, b, std::integer_sequence<int, interleaved(I, sizeof...(I), Width, Upper, Block)...>(), to);
}

/// Transposes 4 x 4 words in every part of four vectors; each vector holds one row of each of these matrices.
template <int Lanes>
HS_INLINED inline void transpose(Words<Lanes>* four) {
  constexpr auto kAll = std::make_integer_sequence<int, Lanes>();
  Words<Lanes> a, b, c, d;
  interleave<1, false, 4>(four[0], four[1], kAll, a);
  interleave<1, false, 4>(four[2], four[3], kAll, b);
  interleave<1, true, 4>(four[0], four[1], kAll, c);
  interleave<1, true, 4>(four[2], four[3], kAll, d);
  interleave<2, false, 4>(a, b, kAll, four[0]);
  interleave<2, true, 4>(a, b, kAll, four[1]);
  interleave<2, false, 4>(c, d, kAll, four[2]);
  interleave<2, true, 4>(c, d, kAll, four[3]);
}

/// The layout in which each part holds the eight codes of one group of a token.
template <int Bits, int Group>
struct GroupOfToken {
  static constexpr int bit(int i) { return (Group * 8 + i % 8) * Bits; }
};

/// Unpacks group `Group` and those after it, up to `groups`. bytes: four vectors, each part of which begins
/// with the first group of a token; to: where group `Group` goes.
template <int Lanes, int Bits, int Group>
HS_INLINED inline void unpack_groups(const Bytes<Lanes>* bytes, std::int64_t groups, std::uint32_t* to) {
  if constexpr (Group < kPart / Bits) {
    if (Group >= groups) return;
    Words<Lanes> pairs[4];
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      Codes<Lanes> codes;
      expand<Lanes, Bits, GroupOfToken<Bits, Group>>(bytes[j], codes);
      load(&codes, pairs[j]);
    }
    transpose<Lanes>(pairs);
#pragma GCC unroll 4
    for (int p = 0; p < 4; ++p) std::memcpy(to + p * kQuantizedTokens, &pairs[p], sizeof pairs[p]);
    unpack_groups<Lanes, Bits, Group + 1>(bytes, groups, to + 4 * kQuantizedTokens);
  }
}

/// Loads parts of `Lanes` tokens from token t on, from `offset` bytes into each row.
template <int Lanes>
HS_INLINED inline void load_rows(const RowStarts& rows, std::int64_t t, std::int64_t offset,
                                 Bytes<Lanes> (&bytes)[4]) {
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const std::uint8_t* starts[Lanes / 4];
    for (int i = 0; i < Lanes / 4; ++i) starts[i] = rows[t + 4 * i + j] + offset;
    load_parts<Lanes>(starts, bytes[j]);
  }
}

/// Sets pairs[c / 2, t] to codes c and c + 1 of token t. columns: whole groups, at most kColumns.
template <int Lanes, int Bits>
HS_INLINED inline void unpack_pairs_of_columns(const RowStarts& rows, std::int64_t tokens,
                                               std::int64_t columns, std::uint32_t* pairs) {
  constexpr int kGroups = kPart / Bits;
  for (std::int64_t t = 0; t < tokens; t += Lanes)
    for (std::int64_t group = 0; group < columns / kGroup; group += kGroups) {
      Bytes<Lanes> bytes[4];
      load_rows<Lanes>(rows, t, group * Bits, bytes);
      unpack_groups<Lanes, Bits, 0>(bytes, columns / kGroup - group,
                                    pairs + 4 * group * kQuantizedTokens + t);
    }
}

/// Unpacks 2 * Lanes codes of a token.
template <int Lanes, int Bits>
HS_INLINED inline void unpack_columns(const std::uint8_t* row, Codes<Lanes>& to) {
  const std::uint8_t* starts[Lanes / 4];
  for (int i = 0; i < Lanes / 4; ++i) starts[i] = row + i * Bits;
  Bytes<Lanes> bytes;
  load_parts<Lanes>(starts, bytes);
  expand<Lanes, Bits, GroupOfToken<Bits, 0>>(bytes, to);
}

/// Puts the words of columns in order: at first `lower` has the first four columns of each part and `upper`
/// the last four.
template <int Lanes>
HS_INLINED inline void sort_parts(Words<Lanes>& lower, Words<Lanes>& upper) {
  if constexpr (Lanes > 4) {
    constexpr auto kAll = std::make_integer_sequence<int, Lanes>();
    const Words<Lanes> a = lower, b = upper;
    interleave<4, false, Lanes>(a, b, kAll, lower);
    interleave<4, true, Lanes>(a, b, kAll, upper);
  }
}

/// Sets pairs[t / 2, c] to code c of tokens t and t + 1, in rows kPairsOfToken apart.
template <int Lanes, int Bits>
HS_INLINED inline void unpack_pairs_of_tokens(const RowStarts& rows, std::int64_t tokens,
                                              std::int64_t columns, std::uint32_t* pairs) {
  constexpr auto kAll = std::make_integer_sequence<int, 2 * Lanes>();
  for (std::int64_t t = 0; t < tokens; t += 2, pairs += kPairsOfToken)
    for (std::int64_t c = 0; c < columns; c += 2 * Lanes) {
      Codes<Lanes> even, odd, both;
      Words<Lanes> lower, upper;
      unpack_columns<Lanes, Bits>(rows[t] + c / kGroup * Bits, even);
      unpack_columns<Lanes, Bits>(rows[t + 1] + c / kGroup * Bits, odd);
      interleave<1, false, 8>(even, odd, kAll, both);
      load(&both, lower);
      interleave<1, true, 8>(even, odd, kAll, both);
      load(&both, upper);
      sort_parts<Lanes>(lower, upper);
      std::memcpy(pairs + c, &lower, sizeof lower);
      std::memcpy(pairs + c + Lanes, &upper, sizeof upper);
    }
}

}  // namespace headspan::int16_unpack
