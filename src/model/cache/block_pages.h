// The stored block of one stream, layer and sequence: records (model/cache/record_format.h) in pages of 64
// tokens, so that it grows without moving what it holds. What the columns mean is told by
// model/cache/cache_plan.h.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <memory>
#include <vector>

#include "model/cache/record_format.h"

namespace headspan {

class BlockPages {
 public:
  static constexpr std::int64_t kPageTokens = 64;

  /// `format` must outlive the pages.
  explicit BlockPages(const RecordFormat& format) : format_(&format) {}

  std::int64_t tokens() const { return tokens_; }
  std::int64_t allocated_bytes() const;

  /// rows: [count, columns]. T: float or double.
  template <class T>
  void append(const T* rows, std::int64_t count);

  /// Returns columns first .. first + columns of tokens begin .. end as [end - begin, columns] and sets
  /// `leading` to the distance of rows: in place for numbers of type T within one page, else unpacked into
  /// `buffer`: [end - begin, RecordFormat::leading(columns)].
  template <class T>
  const T* read(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t columns, T* buffer,
                std::int64_t& leading) const;

  /// A coded run of columns of tokens begin .. end of one page, in place.
  QuantizedBlock codes(std::int64_t begin, std::int64_t end, const ColumnRun& run) const;

  /// Prefetches a part of the page of a token, if there is one. In parts, between which there is something to
  /// compute, because a processor waits for few cache lines at a time.
  void prefetch(std::int64_t token, std::int64_t part = 0, std::int64_t parts = 1) const;

  const RecordFormat& format() const { return *format_; }

 private:
  struct Free {
    void operator()(std::byte* page) const { std::free(page); }
  };

  std::int64_t page_bytes() const { return kPageTokens * format_->bytes() + format_->slack(); }
  void add_page();
  const std::byte* record(std::int64_t token) const;

  const RecordFormat* format_;
  std::int64_t tokens_ = 0;
  std::vector<std::unique_ptr<std::byte, Free>> pages_;
};

/// The pages of a sequence that one of `ranks` ranks holds, which take them in turn: those whose number
/// modulo `ranks` is `index`. Tokens stay in order.
struct PageShard {
  std::int64_t index = 0;
  std::int64_t ranks = 1;

  /// How many of the first `tokens` tokens of the sequence this rank holds.
  std::int64_t count(std::int64_t tokens) const;

  /// Calls use(first, count) for each run of tokens begin .. end of the sequence that this rank holds.
  template <class Use>
  void for_each_run(std::int64_t begin, std::int64_t end, const Use& use) const {
    constexpr std::int64_t kTokens = BlockPages::kPageTokens;
    for (std::int64_t token = begin, last = 0; token < end; token = last) {
      last = ranks == 1 ? end : std::min(end, (token / kTokens + 1) * kTokens);
      if (ranks == 1 || token / kTokens % ranks == index) use(token, last - token);
    }
  }
};

}  // namespace headspan
