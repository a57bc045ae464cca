// Walks over the stored columns of a source, and over the heads of a reader: what attention of many queries
// and of few have in common.
#pragma once

#include <algorithm>

#include <ATen/ops/empty.h>

#include "model/block_pages.h"
#include "model/cache_plan.h"

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
    std::int64_t leading = 0;
    const T* values = pages.read(token, last, source.first, source.count, buffer.data_ptr<T>(), leading);
    use(Stretch<T>{token, last - token, values, leading});
    token = last;
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
