// Loops over the stored columns of a slice and over the heads of a decoder, which page_attention.cpp and
// decode_attention.cpp share.
#pragma once

#include <algorithm>

#include <ATen/ops/empty.h>

#include "model/cache/block_pages.h"
#include "model/cache/cache_plan.h"

namespace headspan {

/// Columns of a slice over some tokens: [tokens, columns of the slice], rows `leading` apart.
template <class T>
struct TokenSpan {
  std::int64_t token;  ///< the first
  std::int64_t tokens;
  const T* values;
  std::int64_t leading;
};

inline void prefetch(const BlockPages::Lines& lines) {
  for (std::int64_t i = 0; i < lines.count; ++i) __builtin_prefetch(lines.first + i * kCacheLine);
}

/// Calls use(span) for tokens begin .. end of the pages, a page at a time. Plain pages of the compute type
/// are read in place, others are unpacked.
template <class T, class Use>
void for_each_page_span(const StoredSlice& slice, const BlockPages& pages, std::int64_t begin,
                        std::int64_t end, const Use& use) {
  const at::Tensor buffer = at::empty({BlockPages::kPageTokens * RecordFormat::leading(slice.count)},
                                      at::CppTypeToScalarType<T>::value);
  for (std::int64_t token = begin; token < end;) {
    const std::int64_t last = std::min(end, (token / BlockPages::kPageTokens + 1) * BlockPages::kPageTokens);
    prefetch(pages.lines(last));
    std::int64_t leading = 0;
    const T* values = pages.read(token, last, slice.first, slice.count, buffer.data_ptr<T>(), leading);
    use(TokenSpan<T>{token, last - token, values, leading});
    token = last;
  }
}

/// The columns of a run that a decoder reads.
struct CommonColumns {
  std::int64_t first;  ///< within the slice
  std::int64_t count;  ///< 0 or less: none
};

inline CommonColumns common_columns(const HeadDecoder& decoder, const ColumnRun& run) {
  const std::int64_t first = std::max(decoder.first, run.first);
  return {first, std::min(decoder.first + decoder.count, run.first + run.count) - first};
}

/// Returns the columns of a slice in runs, whose `first` is within the slice. A run that some decoder reads
/// only in part is marked as not coded, so that it is unpacked.
inline std::vector<ColumnRun> column_runs_of(const StoredSlice& slice, const BlockPages& pages) {
  std::vector<ColumnRun> runs = pages.format().column_runs(slice.first, slice.count);
  for (ColumnRun& run : runs) {
    run.first -= slice.first;
    for (const HeadDecoder& decoder : slice.decoders) {
      const std::int64_t count = common_columns(decoder, run).count;
      run.coded = run.coded && (count <= 0 || count == run.count);
    }
  }
  return runs;
}

/// The stored columns of a slice, in runs.
struct SlicePages {
  const StoredSlice& slice;
  const BlockPages& pages;
  const std::vector<ColumnRun>& runs;  ///< of column_runs_of
};

/// Goes through the first `tokens` tokens a page at a time. For each run i that is not coded, calls
/// numbers(i, span) with its columns alone as float32; for each coded run, codes(i, token, block). Unpacks
/// into `buffer`.
template <class Numbers, class Codes>
void for_each_column_run(const SlicePages& stored, std::int64_t tokens, std::vector<float>& buffer,
                         const Numbers& numbers, const Codes& codes) {
  const auto& [slice, pages, runs] = stored;
  const auto room = static_cast<std::size_t>(BlockPages::kPageTokens * RecordFormat::leading(slice.count));
  buffer.resize(std::max(buffer.size(), room));
  for (std::int64_t token = 0; token < tokens; token += BlockPages::kPageTokens) {
    const std::int64_t last = std::min(tokens, token + BlockPages::kPageTokens);
    for (std::size_t i = 0; i < runs.size(); ++i) {
      const BlockPages::Lines next =
          pages.lines(last, static_cast<std::int64_t>(i), static_cast<std::int64_t>(runs.size()));
      ColumnRun run = runs[i];
      run.first += slice.first;
      if (run.coded) {
        QuantizedBlock block = pages.codes(token, last, run);
        block.next = next.first;
        block.next_lines = next.count;
        codes(i, token, block);
        continue;
      }
      prefetch(next);
      std::int64_t leading = 0;
      const float* values = pages.read(token, last, run.first, run.count, buffer.data(), leading);
      numbers(i, TokenSpan<float>{token, last - token, values, leading});
    }
  }
}

/// Calls use(index in the list, head, count) for each run of neighbours among the heads of a decoder.
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
