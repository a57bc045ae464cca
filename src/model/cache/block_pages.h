// The stored block of one stream, layer and sequence: records (model/cache/record_format.h) in pages of 64
// tokens, so that it grows without moving what it holds. model/cache/cache_plan.h says what the columns mean.
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
  explicit BlockPages(const RecordFormat& format);

  std::int64_t tokens() const { return tokens_; }

  /// Returns the bytes of pages, without the tokens of a group that waits for more: caches keep those as they
  /// are.
  std::int64_t allocated_bytes() const;

  /// rows: [count, columns]. What is quantised in groups reads as 0 until its group is complete. T: float or
  /// double.
  template <class T>
  void append(const T* rows, std::int64_t count);

  /// Replaces tokens begin .. begin + count, whole groups. rows: [count, columns].
  template <class T>
  void rewrite(std::int64_t begin, const T* rows, std::int64_t count);

  /// Returns columns first .. first + columns of tokens begin .. end as [end - begin, columns] and sets
  /// `leading` to the distance of rows: in place for numbers of type T within one page, else unpacked into
  /// `buffer`: [end - begin, RecordFormat::leading(columns)].
  template <class T>
  const T* read(std::int64_t begin, std::int64_t end, std::int64_t first, std::int64_t columns, T* buffer,
                std::int64_t& leading) const;

  /// Returns the codes of a coded run of columns for tokens begin .. end, which lie in one page. The codes
  /// stay in place. What is read next is left empty.
  QuantizedBlock codes(std::int64_t begin, std::int64_t end, const ColumnRun& run) const;

  /// Cache lines of a page.
  struct Lines {
    const std::uint8_t* first;
    std::int64_t count;
  };

  /// Returns part `part` of `parts` of the page that holds `token`; no lines if the token is not stored yet.
  Lines lines(std::int64_t token, std::int64_t part = 0, std::int64_t parts = 1) const;

  const RecordFormat& format() const { return *format_; }

 private:
  struct Free {
    void operator()(std::byte* page) const { std::free(page); }
  };

  std::int64_t page_bytes() const { return kPageTokens * format_->bytes() + format_->slack(); }
  void add_page();
  std::byte* record(std::int64_t token) const;

  const RecordFormat* format_;
  std::int64_t tokens_ = 0;
  std::vector<double> waiting_;  // rows of the last group, if it is not complete
  std::vector<std::unique_ptr<std::byte, Free>> pages_;
};

/// The pages of a sequence that one rank holds. `ranks` ranks take the pages in turn, and this one has those
/// whose number modulo `ranks` is `index`. Its tokens stay in order.
struct PageShard {
  std::int64_t index = 0;
  std::int64_t ranks = 1;

  /// Returns how many of the first `tokens` tokens of the sequence this rank holds.
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
