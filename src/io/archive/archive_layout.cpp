#include "io/archive/archive_layout.h"

#include <algorithm>

#include "base/checked.h"

namespace headspan {
namespace {

/// Numbers of the exact tokens of a layer of a stream.
std::int64_t exact_numbers(const ArchiveHeader& header) {
  return checked_mul(static_cast<std::int64_t>(header.exact.size()),
                     checked_mul(header.kv_heads, header.head_size, "columns of an archive"),
                     "exact tokens of an archive");
}

}  // namespace

ArchiveLayout::ArchiveLayout(const ArchiveHeader& header, std::int64_t groups)
    : header_(header), groups_(groups) {}

std::int64_t ArchiveLayout::chunks() const {
  return (header_.coded_tokens() + kBlockTokens - 1) / kBlockTokens;
}

/// Returns token n of those that are coded: as many more as there are exact tokens before it.
std::int64_t ArchiveLayout::nth_coded(std::int64_t n) const {
  const std::vector<std::int64_t>& exact = header_.exact;
  // exact[k] - k coded tokens are before exact token k.
  std::int64_t low = 0, high = static_cast<std::int64_t>(exact.size());
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (exact[to_size(middle)] - middle <= n)
      low = middle + 1;
    else
      high = middle;
  }
  return n + low;
}

std::vector<std::int64_t> ArchiveLayout::tokens(std::int64_t chunk) const {
  const std::int64_t first = chunk * kBlockTokens,
                     last = std::min(first + kBlockTokens, header_.coded_tokens());
  std::vector<std::int64_t> tokens;
  for (std::int64_t n = first; n < last; ++n) tokens.push_back(nth_coded(n));
  return tokens;
}

std::vector<std::int64_t> ArchiveLayout::positions(std::vector<std::int64_t> tokens) const {
  for (std::int64_t& token : tokens) token += header_.first_position;
  return tokens;
}

bool ArchiveLayout::has_tokens(std::int64_t chunk, const Range& range) const {
  const std::vector<std::int64_t> of_chunk = tokens(chunk);
  return std::any_of(of_chunk.begin(), of_chunk.end(),
                     [&](std::int64_t token) { return range.contains(token); });
}

std::vector<std::uint8_t> exact_block(const ArchiveHeader& header, const ReadLayer& read) {
  const std::int64_t numbers = exact_numbers(header), bytes = numbers * element_bytes(header.type);
  std::vector<float> values(to_size(numbers));
  std::vector<std::uint8_t> block;
  for (const auto& word : cached_stream_words())
    for (std::int64_t layer = 0; numbers > 0 && layer < header.layers; ++layer) {
      read(word.second, layer, header.exact, values.data());
      block.resize(block.size() + to_size(bytes));
      narrow(header.type, values.data(), numbers, block.data() + block.size() - bytes);
    }
  return block;
}

void read_exact_block(const ArchiveHeader& header, const std::vector<std::uint8_t>& block,
                      const Range& layers, const TakeLayer& take) {
  const std::int64_t numbers = exact_numbers(header),
                     bytes = checked_mul(numbers, element_bytes(header.type), "exact tokens of an archive");
  if (static_cast<std::int64_t>(block.size()) !=
      checked_mul(2 * header.layers, bytes, "exact tokens of an archive"))
    throw InputError("", "block", "0", "has not the exact tokens that the header names");
  if (numbers == 0) return;
  std::vector<float> values(to_size(numbers));
  std::int64_t at = 0;
  for (const auto& word : cached_stream_words())
    for (std::int64_t layer = 0; layer < header.layers; ++layer, at += bytes) {
      if (!layers.contains(layer)) continue;
      widen(header.type, &block[to_size(at)], numbers, values.data());
      take(word.second, layer, header.exact, values.data());
    }
}

}  // namespace headspan
