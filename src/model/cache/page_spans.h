// Walks over the stored columns of a slice, and over the heads of a decoder: what attention of many queries
// and of few have in common.
#pragma once

#include <algorithm>

#include <ATen/ops/empty.h>

#include "model/cache/block_pages.h"
#include "model/cache/cache_plan.h"

namespace headspan {

/// Columns of a slice over some tokens, where they lie: [tokens, columns of the slice], rows `leading`
/// apart.
template <class T>
struct TokenSpan {
  std::int64_t token;  ///< the first
  std::int64_t tokens;
  const T* values;
  std::int64_t leading;
};

/// Calls use(span) over tokens begin .. end of the pages, a page at a time: plain pages of the compute
/// type as they lie, others unpacked.
template <class T, class Use>
void for_each_page_span(const StoredSlice& slice, const BlockPages& pages, std::int64_t begin,
                        std::int64_t end, const Use& use) {
  const at::Tensor buffer = at::empty({BlockPages::kPageTokens * RecordFormat::leading(slice.count)},
                                      at::CppTypeToScalarType<T>::value);
  for (std::int64_t token = begin; token < end;) {
    const std::int64_t last = std::min(end, (token / BlockPages::kPageTokens + 1) * BlockPages::kPageTokens);
    pages.prefetch(last);
    std::int64_t leading = 0;
    const T* values = pages.read(token, last, slice.first, slice.count, buffer.data_ptr<T>(), leading);
    use(TokenSpan<T>{token, last - token, values, leading});
    token = last;
  }
}

/// Columns that a decoder takes of a piece of its slice.
struct CommonColumns {
  std::int64_t first;  ///< within the slice
  std::int64_t count;  ///< none: not above 0
};

inline CommonColumns common_columns(const HeadDecoder& decoder, const ColumnRun& piece) {
  const std::int64_t first = std::max(decoder.first, piece.first);
  return {first, std::min(decoder.first + decoder.count, piece.first + piece.count) - first};
}

/// The columns of a slice in pieces, their `first` within the slice. What a decoder takes in part is read as
/// numbers.
inline std::vector<ColumnRun> column_runs_of(const StoredSlice& slice, const BlockPages& pages) {
  std::vector<ColumnRun> pieces = pages.format().pieces(slice.first, slice.count);
  for (ColumnRun& piece : pieces) {
    piece.first -= slice.first;
    for (const HeadDecoder& decoder : slice.decoders) {
      const std::int64_t count = common_columns(decoder, piece).count;
      piece.coded = piece.coded && (count <= 0 || count == piece.count);
    }
  }
  return pieces;
}

/// Over the first `tokens` tokens of the pages, a page at a time, calls numbers(i, span) for each piece i
/// that is read as numbers, its columns alone as float32, and codes(i, token, block) for each other. `buffer`
/// is for what has to be unpacked.
template <class Numbers, class Codes>
void for_each_column_run(const StoredSlice& slice, const BlockPages& pages,
                         const std::vector<ColumnRun>& pieces, std::int64_t tokens,
                         std::vector<float>& buffer, const Numbers& numbers, const Codes& codes) {
  const auto room = static_cast<std::size_t>(BlockPages::kPageTokens * RecordFormat::leading(slice.count));
  buffer.resize(std::max(buffer.size(), room));
  for (std::int64_t token = 0; token < tokens; token += BlockPages::kPageTokens) {
    const std::int64_t last = std::min(tokens, token + BlockPages::kPageTokens);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      pages.prefetch(last, static_cast<std::int64_t>(i), static_cast<std::int64_t>(pieces.size()));
      ColumnRun piece = pieces[i];
      piece.first += slice.first;
      if (piece.coded) {
        codes(i, token, pages.codes(token, last, piece));
        continue;
      }
      std::int64_t leading = 0;
      const float* values = pages.read(token, last, piece.first, piece.count, buffer.data(), leading);
      numbers(i, TokenSpan<float>{token, last - token, values, leading});
    }
  }
}

/// Calls use(place in the list, head, count) for each run of neighbours among the heads of a decoder.
template <class Use>
void for_each_run(const HeadDecoder& decoder, const Use& use) {
  const auto size = static_cast<std::int64_t>(decoder.heads.size());
  const auto* heads = decoder.heads.data();
  for (std::int64_t i = 0, count = 1; i < size; i += count, count = 1) {
    while (i + count < size && heads[i + count] == heads[i] + count) ++count;
    use(i, heads[i], count);
  }
}

}  // namespace headspan
