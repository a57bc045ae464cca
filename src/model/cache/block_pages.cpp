#include "model/cache/block_pages.h"

#include <algorithm>
#include <new>

#include "base/error.h"
#include "base/range.h"

namespace headspan {

BlockPages::BlockPages(const RecordFormat& format) : format_(&format) {
  HS_ASSERT(kPageTokens % format.group() == 0);
}

std::int64_t BlockPages::allocated_bytes() const {
  return static_cast<std::int64_t>(pages_.size()) * page_bytes();
}

void BlockPages::add_page() {
  constexpr std::size_t kAlignment = 64;  // a vector, a cache line
  void* page = nullptr;
  if (posix_memalign(&page, kAlignment, static_cast<std::size_t>(page_bytes())) != 0) throw std::bad_alloc();
  pages_.emplace_back(static_cast<std::byte*>(page));
  if (format_->group() > 1) std::fill_n(pages_.back().get(), page_bytes(), std::byte{0});
}

std::byte* BlockPages::record(std::int64_t token) const {
  return pages_[static_cast<std::size_t>(token / kPageTokens)].get() + token % kPageTokens * format_->bytes();
}

BlockPages::Lines BlockPages::lines(std::int64_t token, std::int64_t part, std::int64_t parts) const {
  if (token >= tokens_) return {nullptr, 0};
  const std::byte* page = pages_[static_cast<std::size_t>(token / kPageTokens)].get();
  const Range lines = range_of((page_bytes() + kCacheLine - 1) / kCacheLine, parts, part);
  return {reinterpret_cast<const std::uint8_t*>(page) + lines.first * kCacheLine, lines.count};
}

template <class T>
void BlockPages::append(const T* rows, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i, ++tokens_) {
    if (tokens_ % kPageTokens == 0) add_page();
    const T* const row = rows + i * format_->columns();
    format_->pack(row, record(tokens_));
    const std::int64_t group = format_->group();
    if (group == 1) continue;
    waiting_.insert(waiting_.end(), row, row + format_->columns());
    if (tokens_ % group != group - 1) continue;
    format_->pack_group(waiting_.data(), record(tokens_ - tokens_ % group));
    waiting_.clear();
  }
}

template <class T>
void BlockPages::rewrite(std::int64_t begin, const T* rows, std::int64_t count) {
  const std::int64_t group = format_->group();
  HS_ASSERT(begin % group == 0 && count % group == 0 && begin + count <= tokens_);
  for (std::int64_t i = 0; i < count; ++i) {
    format_->pack(rows + i * format_->columns(), record(begin + i));
    if (group > 1 && i % group == group - 1)
      format_->pack_group(rows + (i - i % group) * format_->columns(), record(begin + i - i % group));
  }
}

template <class T>
const T* BlockPages::read(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t columns,
                          T* buffer, std::int64_t& leading) const {
  if (begin < end && begin / kPageTokens == (end - 1) / kPageTokens && format_->template is_plain<T>()) {
    leading = format_->columns();
    return reinterpret_cast<const T*>(record(begin)) + first;
  }
  leading = RecordFormat::leading(columns);
  T* out = buffer;
  for (std::int64_t token = begin; token < end;) {
    const std::int64_t count = std::min(end, (token / kPageTokens + 1) * kPageTokens) - token;
    format_->unpack(record(token), count, token % format_->group(), first, columns, out, leading);
    out += count * leading;
    token += count;
  }
  return buffer;
}

QuantizedBlock BlockPages::codes(std::int64_t begin, std::int64_t end, const ColumnRun& run) const {
  static_assert(kPageTokens <= kQuantizedTokens);
  return format_->codes(record(begin), end - begin, run);
}

std::int64_t PageShard::count(std::int64_t tokens) const {
  constexpr std::int64_t kTokens = BlockPages::kPageTokens;
  const std::int64_t round = kTokens * ranks;
  return tokens / round * kTokens + std::clamp<std::int64_t>(tokens % round - index * kTokens, 0, kTokens);
}

template void BlockPages::append<float>(const float*, std::int64_t);
template void BlockPages::append<double>(const double*, std::int64_t);
template void BlockPages::rewrite<float>(std::int64_t, const float*, std::int64_t);
template void BlockPages::rewrite<double>(std::int64_t, const double*, std::int64_t);
template const float* BlockPages::read<float>(std::int64_t, std::int64_t, std::int64_t, std::int64_t, float*,
                                              std::int64_t&) const;
template const double* BlockPages::read<double>(std::int64_t, std::int64_t, std::int64_t, std::int64_t,
                                                double*, std::int64_t&) const;

}  // namespace headspan
