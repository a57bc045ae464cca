// Unpacks codes of few bits to signed bytes, four in a word, for processors that move bits to bytes in one
// instruction (AVX-512 VBMI) and multiply four pairs of bytes at a time (VNNI). A part of quantized_gemm.cpp.
// A vector of words holds four columns of neighbouring tokens, or four tokens of neighbouring columns. A code
// is multiplied by the two bytes of a 16-bit integer, so that sums are those of int16_unpack.h, exactly.
#pragma once

#include "model/kernels/int16_unpack.h"

#if HS_NAMED_INSTRUCTIONS
namespace headspan::byte_unpack {

using namespace int16_unpack;

constexpr std::int64_t kWordsOfQuad = kColumns + 64;  // whole vectors are written behind the last column

/// Sets byte i of each part of `to` to code i of the part, minus 2^(Bits - 1), so that codes lie around zero.
template <int Bits, int... Byte>
HS_INLINED inline void expand(const Bytes<16>& bytes, std::integer_sequence<int, Byte...> /*bytes*/,
                              Bytes<16>& to) {
  typedef char Characters __attribute__((vector_size(64)));
  using Order = std::integer_sequence<int, Byte / kPart * kPart + Byte % kPart / 8 * Bits + Byte % 8 ...>;
  constexpr Characters kFirstBit = {static_cast<char>(Byte % 8 * Bits)...};
  shuffle(bytes, bytes, Order(), to);
  if constexpr (Bits < 8) {
    Characters groups;
    load(&to, groups);
    const Characters moved = __builtin_ia32_vpmultishiftqb512_mask(kFirstBit, groups, groups, ~0ULL);
    load(&moved, to);
    to &= static_cast<std::uint8_t>((1 << Bits) - 1);
  }
  to -= static_cast<std::uint8_t>(1 << (Bits - 1));
}

template <int Bits>
HS_INLINED inline void expand(const Bytes<16>& bytes, Bytes<16>& to) {
  expand<Bits>(bytes, std::make_integer_sequence<int, 64>(), to);
}

/// Sets quads[c / 4, t] to codes c to c + 3 of token t, rows kQuantizedTokens apart. columns: at most
/// kColumns.
template <int Bits>
HS_INLINED inline void unpack_quads_of_columns(const RowStarts& rows, std::int64_t tokens,
                                               std::int64_t columns, std::uint32_t* quads) {
  for (std::int64_t c = 0; c < columns; c += kPart)
    for (std::int64_t t = 0; t < tokens; t += 16) {
      Bytes<16> bytes[4];
      load_rows<16>(rows, t, c / kGroup * Bits, bytes);
      Words<16> words[4];
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) {
        Bytes<16> codes;
        expand<Bits>(bytes[j], codes);
        load(&codes, words[j]);
      }
      transpose<16>(words);
#pragma GCC unroll 4
      for (int q = 0; q < 4; ++q)
        std::memcpy(quads + (c / 4 + q) * kQuantizedTokens + t, &words[q], sizeof words[q]);
    }
}

/// Takes two parts of a and two of b: first, first + step of each.
template <int First, int Step, int... I>
HS_INLINED inline void take_parts(const Words<16>& a, const Words<16>& b,
                                  std::integer_sequence<int, I...> /*words*/, Words<16>& to) {
  shuffle(a, b, std::integer_sequence<int, I / 8 * 16 + (First + I % 8 / 4 * Step) * 4 + I % 4 ...>(), to);
}

/// Puts the words of 64 columns in order: at first vector j has columns 4 j to 4 j + 3 of each part's 16.
HS_INLINED inline void sort_columns(Words<16>* four) {
  constexpr auto kAll = std::make_integer_sequence<int, 16>();
  Words<16> a, b, c, d;
  take_parts<0, 1>(four[0], four[1], kAll, a);
  take_parts<2, 1>(four[0], four[1], kAll, b);
  take_parts<0, 1>(four[2], four[3], kAll, c);
  take_parts<2, 1>(four[2], four[3], kAll, d);
  take_parts<0, 2>(a, c, kAll, four[0]);
  take_parts<1, 2>(a, c, kAll, four[1]);
  take_parts<0, 2>(b, d, kAll, four[2]);
  take_parts<1, 2>(b, d, kAll, four[3]);
}

/// Takes the codes of four tokens in turn. Each part holds 16 columns.
HS_INLINED inline void interleave_tokens(const Bytes<16>* tokens, Words<16>* four) {
  constexpr auto kBytes = std::make_integer_sequence<int, 64>();
  constexpr auto kPairs = std::make_integer_sequence<int, 32>();
  Bytes<16> both;
  Codes<16> first[2], second[2], quads;
  interleave<1, false, kPart>(tokens[0], tokens[1], kBytes, both);
  load(&both, first[0]);
  interleave<1, true, kPart>(tokens[0], tokens[1], kBytes, both);
  load(&both, first[1]);
  interleave<1, false, kPart>(tokens[2], tokens[3], kBytes, both);
  load(&both, second[0]);
  interleave<1, true, kPart>(tokens[2], tokens[3], kBytes, both);
  load(&both, second[1]);
#pragma GCC unroll 2
  for (int half = 0; half < 2; ++half) {
    interleave<1, false, 8>(first[half], second[half], kPairs, quads);
    load(&quads, four[2 * half]);
    interleave<1, true, 8>(first[half], second[half], kPairs, quads);
    load(&quads, four[2 * half + 1]);
  }
}

/// Sets quads[t / 4, c] to code c of tokens t to t + 3, in rows kWordsOfQuad apart.
template <int Bits>
HS_INLINED inline void unpack_quads_of_tokens(const RowStarts& rows, std::int64_t tokens,
                                              std::int64_t columns, std::uint32_t* quads) {
  for (std::int64_t t = 0; t < tokens; t += 4, quads += kWordsOfQuad)
    for (std::int64_t c = 0; c < columns; c += 64) {
      Bytes<16> codes[4];
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        const std::uint8_t* const row = rows[t + i] + c / kGroup * Bits;
        const std::uint8_t* const starts[4] = {row, row + 2 * Bits, row + 4 * Bits, row + 6 * Bits};
        Bytes<16> bytes;
        load_parts<16>(starts, bytes);
        expand<Bits>(bytes, codes[i]);
      }
      Words<16> words[4];
      interleave_tokens(codes, words);
      sort_columns(words);
      std::memcpy(quads + c, words, sizeof words);
    }
}

}  // namespace headspan::byte_unpack
#endif
