// Codes of few bits as 16-bit integers, two in a word, as a processor multiplies and adds pairs of them: for
// the kernels of model/coded_rows alone. Words of a matrix of pairs lie so that a vector of them has one pair
// of columns of neighbouring tokens, or one pair of tokens in neighbouring columns. Everything is inlined
// into a kernel that is compiled for a processor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "base/process/cpu_dispatch.h"
#include "model/kernels/quantized_block.h"
#include "model/kernels/shuffle.h"

namespace headspan::int16_unpack {

constexpr std::int64_t kColumns = 128;  // that are unpacked at a time
constexpr std::int64_t kGroup = 8;      // codes that fill whole bytes

/// A vector of words, and what is made of it; its halves are 16-bit integers.
template <int Lanes>
struct Vector {
  typedef std::uint32_t Words __attribute__((vector_size(4 * Lanes)));  // `using` would lose the size
  typedef std::int32_t Ints __attribute__((vector_size(4 * Lanes)));
  typedef std::int16_t Halves __attribute__((vector_size(4 * Lanes)));
  typedef std::uint16_t Codes __attribute__((vector_size(4 * Lanes)));
  typedef std::uint8_t Bytes __attribute__((vector_size(4 * Lanes)));
  typedef float Floats __attribute__((vector_size(4 * Lanes)));
};

template <int Lanes>
using Words = typename Vector<Lanes>::Words;
template <int Lanes>
using Ints = typename Vector<Lanes>::Ints;
template <int Lanes>
using Codes = typename Vector<Lanes>::Codes;
template <int Lanes>
using Bytes = typename Vector<Lanes>::Bytes;
template <int Lanes>
using Floats = typename Vector<Lanes>::Floats;

template <class To, class From>
HS_INLINED inline void load(const From* from, To& to) {
  std::memcpy(&to, from, sizeof to);
}

inline std::int64_t whole_groups(std::int64_t columns) { return (columns + kGroup - 1) / kGroup * kGroup; }

/// Where codes first .. first + count of each row begin, with kBehind bytes of memory or more behind their
/// last byte: the last rows are copies. Rows behind the last are that one.
class RowStarts {
 public:
  HS_INLINED RowStarts(const CodedRows& codes, std::int64_t first, std::int64_t count) {
    const std::int64_t begin = first / kGroup * codes.bits, bytes = (count * codes.bits + 7) / 8;
    const std::uint8_t* start = codes.codes + begin;
    for (std::int64_t t = 0, copies = 0; t < kQuantizedTokens; ++t) {
      if (t < codes.rows) {
        start = codes.codes + t * codes.stride + begin;
        if ((codes.rows - 1 - t) * codes.stride < kBehind) {
          std::memcpy(copies_[copies], start, static_cast<std::size_t>(bytes));
          start = copies_[copies++];
        }
      }
      starts_[t] = start;
    }
  }

  HS_INLINED const std::uint8_t* operator[](std::int64_t row) const { return starts_[row]; }

 private:
  static constexpr std::int64_t kBehind = 40, kLeastStride = 3;  // a scale and one byte
  const std::uint8_t* starts_[kQuantizedTokens];
  std::uint8_t copies_[(kBehind + kLeastStride - 1) / kLeastStride]
                      [kColumns * kMostQuantizedBits / 8 + kBehind];
};

constexpr int kPart = 16;  // bytes of a part of a vector: within these a processor moves them best

/// Part i of `to` from starts[i].
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

/// `to`, in 16-bit integers: the codes that begin at bit Place::bit(i) of integer i's part, 2^(Bits - 1)
/// less, so that they lie around zero.
template <int Lanes, int Bits, class Place, int... Byte, int... Integer>
HS_INLINED inline void expand(const Bytes<Lanes>& bytes, std::integer_sequence<int, Byte...> /*of both*/,
                              std::integer_sequence<int, Integer...> /*at their places*/, Codes<Lanes>& to) {
  using Order =
      std::integer_sequence<int, Byte / kPart * kPart + (Place::bit(Byte / 2) / 8 + Byte % 2) % kPart...>;
  constexpr Codes<Lanes> kUp = {static_cast<std::uint16_t>(1 << (16 - Bits - Place::bit(Integer) % 8))...};
  Bytes<Lanes> pairs;
  shuffle(bytes, bytes, Order(), pairs);
  load(&pairs, to);
  to = (to * kUp >> (16 - Bits)) - (1 << (Bits - 1));
}

template <int Lanes, int Bits, class Place>
HS_INLINED inline void expand(const Bytes<Lanes>& bytes, Codes<Lanes>& to) {
  expand<Lanes, Bits, Place>(bytes, std::make_integer_sequence<int, 4 * Lanes>(),
                             std::make_integer_sequence<int, 2 * Lanes>(), to);
}

/// Element i of what interleave makes of vectors of `count` elements.
constexpr int interleaved(int i, int count, int width, bool upper, int block) {
  const int own = i % block, from_b = own / width % 2;
  const int place = (upper ? block / 2 : 0) + own / (2 * width) * width + own % width;
  return from_b * count + i / block * block + place;
}

/// Of every `Block` elements: `Width` of a and of b in turn, from their lower or upper halves.
template <int Width, bool Upper, int Block, class V, int... I>
HS_INLINED inline void interleave(const V& a, const V& b, std::integer_sequence<int, I...> /*elements*/,
                                  V& to) {
  shuffle(a, b, std::integer_sequence<int, interleaved(I, sizeof...(I), Width, Upper, Block)...>(), to);
}

/// Four vectors whose parts are rows of 4 by 4 words: rows become columns.
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

/// The eight codes of a group of a token in each part.
template <int Bits, int Group>
struct GroupOfToken {
  static constexpr int bit(int i) { return (Group * 8 + i % 8) * Bits; }
};

/// bytes: four vectors, in whose parts the groups of a token begin. to: where group `Group` and those behind
/// it go, if they are among the first `groups`.
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

/// As pairs[c / 2, t]: codes c and c + 1 of token t. columns: whole groups, at most kColumns.
template <int Lanes, int Bits>
HS_INLINED inline void unpack_pairs_of_columns(const RowStarts& rows, std::int64_t tokens,
                                               std::int64_t columns, std::uint32_t* pairs) {
  constexpr int kGroups = kPart / Bits;
  for (std::int64_t t = 0; t < tokens; t += Lanes)
    for (std::int64_t group = 0; group < columns / kGroup; group += kGroups) {
      Bytes<Lanes> bytes[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        const std::uint8_t* starts[Lanes / 4];
        for (int i = 0; i < Lanes / 4; ++i) starts[i] = rows[t + 4 * i + j] + group * Bits;
        load_parts<Lanes>(starts, bytes[j]);
      }
      unpack_groups<Lanes, Bits, 0>(bytes, columns / kGroup - group,
                                    pairs + 4 * group * kQuantizedTokens + t);
    }
}

/// 2 * Lanes codes of a token.
template <int Lanes, int Bits>
HS_INLINED inline void unpack_columns(const std::uint8_t* row, Codes<Lanes>& to) {
  const std::uint8_t* starts[Lanes / 4];
  for (int i = 0; i < Lanes / 4; ++i) starts[i] = row + i * Bits;
  Bytes<Lanes> bytes;
  load_parts<Lanes>(starts, bytes);
  expand<Lanes, Bits, GroupOfToken<Bits, 0>>(bytes, to);
}

/// Pairs of columns, the first of each part in `lower`, the last of each in `upper`: in their order.
template <int Lanes>
HS_INLINED inline void sort_parts(Words<Lanes>& lower, Words<Lanes>& upper) {
  if constexpr (Lanes > 4) {
    constexpr auto kAll = std::make_integer_sequence<int, Lanes>();
    const Words<Lanes> a = lower, b = upper;
    interleave<4, false, Lanes>(a, b, kAll, lower);
    interleave<4, true, Lanes>(a, b, kAll, upper);
  }
}

/// As pairs[t / 2, c]: code c of tokens t and t + 1.
template <int Lanes, int Bits>
HS_INLINED inline void unpack_pairs_of_tokens(const RowStarts& rows, std::int64_t tokens,
                                              std::int64_t columns, std::uint32_t* pairs) {
  constexpr auto kAll = std::make_integer_sequence<int, 2 * Lanes>();
  for (std::int64_t t = 0; t < tokens; t += 2, pairs += kColumns)
    for (std::int64_t c = 0; c < columns; c += 2 * Lanes) {
      Codes<Lanes> one, two, own;
      Words<Lanes> lower, upper;
      unpack_columns<Lanes, Bits>(rows[t] + c / kGroup * Bits, one);
      unpack_columns<Lanes, Bits>(rows[t + 1] + c / kGroup * Bits, two);
      interleave<1, false, 8>(one, two, kAll, own);
      load(&own, lower);
      interleave<1, true, 8>(one, two, kAll, own);
      load(&own, upper);
      sort_parts<Lanes>(lower, upper);
      std::memcpy(pairs + c, &lower, sizeof lower);
      std::memcpy(pairs + c + Lanes, &upper, sizeof upper);
    }
}

/// Calls use(bits) with a constant.
template <class Use>
HS_INLINED inline void with_bits(int bits, const Use& use) {
  switch (bits) {
    case 2:
      return use(std::integral_constant<int, 2>());
    case 3:
      return use(std::integral_constant<int, 3>());
    case 4:
      return use(std::integral_constant<int, 4>());
    case 5:
      return use(std::integral_constant<int, 5>());
    case 6:
      return use(std::integral_constant<int, 6>());
    default:
      return use(std::integral_constant<int, 8>());
  }
}

}  // namespace headspan::int16_unpack
