// Walks over the stored columns of a source, and over the heads of a reader: what attention of many queries
// and of few have in common.
#pragma once

#include <algorithm>

#include <ATen/ops/empty.h>

#include "model/cache/block_pages.h"
#include "model/cache/cache_plan.h"

namespace headspan {

/// Columns of a source over some tokens, where they lie: [tokens, columns of the source], rows `leading`
/// apart.
template <class T>
struct Stretch {
  std::int64_t token;  ///< the first
  std::int64_t tokens;
  const T* values;
  std::int64_t leading;
};

/// Calls use(stretch) over tokens begin .. end of the pages, a page at a time: plain pages of the compute
/// type as they lie, others unpacked.
template <class T, class Use>
void for_each_stretch(const Source& source, const BlockPages& pages, std::int64_t begin, std::int64_t end,
                      const Use& use) {
  const at::Tensor buffer = at::empty({BlockPages::kPageTokens * RecordFormat::leading(source.count)},
                                      at::CppTypeToScalarType<T>::value);
  for (std::int64_t token = begin; token < end;) {
    const std::int64_t last = std::min(end, (token / BlockPages::kPageTokens + 1) * BlockPages::kPageTokens);
    pages.prefetch(last);
    std::int64_t leading = 0;
    const T* values = pages.read(token, last, source.first, source.count, buffer.data_ptr<T>(), leading);
    use(Stretch<T>{token, last - token, values, leading});
    token = last;
  }
}

/// Columns that a reader takes of a piece of its source.
struct CommonColumns {
  std::int64_t first;  ///< within the source
  std::int64_t count;  ///< none: not above 0
};

inline CommonColumns common_columns(const Reader& reader, const Piece& piece) {
  const std::int64_t first = std::max(reader.first, piece.first);
  return {first, std::min(reader.first + reader.count, piece.first + piece.count) - first};
}

/// The columns of a source in pieces, their `first` within the source. What a reader takes in part is read as
/// numbers.
inline std::vector<Piece> pieces_of(const Source& source, const BlockPages& pages) {
  std::vector<Piece> pieces = pages.format().pieces(source.first, source.count);
  for (Piece& piece : pieces) {
    piece.first -= source.first;
    for (const Reader& reader : source.readers) {
      const std::int64_t count = common_columns(reader, piece).count;
      piece.coded = piece.coded && (count <= 0 || count == piece.count);
    }
  }
  return pieces;
}

/// Over the first `tokens` tokens of the pages, a page at a time, calls numbers(i, stretch) for each piece i
/// that is read as numbers, its columns alone as float32, and codes(i, token, block) for each other. `buffer`
/// is for what has to be unpacked.
template <class Numbers, class Codes>
void for_each_piece(const Source& source, const BlockPages& pages, const std::vector<Piece>& pieces,
                    std::int64_t tokens, std::vector<float>& buffer, const Numbers& numbers,
                    const Codes& codes) {
  const auto room = static_cast<std::size_t>(BlockPages::kPageTokens * RecordFormat::leading(source.count));
  buffer.resize(std::max(buffer.size(), room));
  for (std::int64_t token = 0; token < tokens; token += BlockPages::kPageTokens) {
    const std::int64_t last = std::min(tokens, token + BlockPages::kPageTokens);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pages.prefetch(last, static_cast<std::int64_t>(i), static_cast<std::int64_t>(pieces.size()));
      Piece piece = pieces[i];
      piece.first += source.first;
      if (piece.coded) {
        codes(i, token, pages.codes(token, last, piece));
        continue;
      }
      std::int64_t leading = 0;
      const float* values = pages.read(token, last, piece.first, piece.count, buffer.data(), leading);
      numbers(i, Stretch<float>{token, last - token, values, leading});
    }
  }
}

/// Calls use(place in the list, head, count) for each run of neighbours among the heads of a reader.
template <class Use>
void for_each_run(const Reader& reader, const Use& use) {
  const auto size = static_cast<std::int64_t>(reader.heads.size());
  const auto* heads = reader.heads.data();
  for (std::int64_t i = 0, count = 1; i < size; i += count, count = 1) {
    while (i + count < size && heads[i + count] == heads[i] + count) ++count;
    use(i, heads[i], count);
  }
}

}  // namespace headspan
