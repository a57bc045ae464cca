#include "stats/gram/collector.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/checked.h"
#include "base/range.h"

namespace headspan {

template <class T>
std::int64_t panel_tokens(const GridShape& grid, const std::vector<std::int64_t>& columns,
                          Precision precision, bool heldout) {
  const auto ranks = static_cast<double>(grid.rows * grid.columns), rows = static_cast<double>(grid.rows),
             grid_columns = static_cast<double>(grid.columns);
  const double parts = heldout ? 2 : 1;
  const double product_bytes = multiplies_doubles(precision) ? sizeof(double) : sizeof(float);
  double gram_bytes = 0, waiting_bytes = 0, widest = 0;
  for (const std::int64_t count : columns) {
    const auto width = static_cast<double>(count);
    gram_bytes += parts * sizeof(double) * width * width / ranks;
    waiting_bytes += parts * sizeof(T) * width / ranks;
    widest = std::max(widest, width);
  }
  // What a panel takes if a library multiplies a copy of it. A single rank holds one operand. Each of several
  // ranks holds two, for this panel and for the previous one.
  const double operands = ranks == 1 ? 1 : 2 / rows + 2 / grid_columns;
  const double token_bytes = waiting_bytes + operands * product_bytes * widest;
  const double room = std::max(gram_bytes / 8, 128.0 * (1 << 20));
  return std::clamp(static_cast<std::int64_t>(room / token_bytes) / 256 * 256, std::int64_t{512},
                    std::int64_t{4096});
}

int panel_count(const Comm& comm, std::int64_t tokens, std::int64_t panel_tokens) {
  const double share = static_cast<double>(panel_tokens) / comm.size();
  return comm.max(std::max(1, static_cast<int>(std::lround(static_cast<double>(tokens) / share))));
}

template <class T>
Collector<T>::Collector(const Grid& grid, const GramSpec& spec)
    : grid_(&grid),
      panel_tokens_(panel_tokens<T>(grid.shape(), spec.columns, spec.precision, spec.heldout)),
      waiting_tokens_(spec.parts(), 0),
      updater_(grid, spec.precision) {
  for (std::size_t s = 0; s < spec.columns.size(); ++s) {
    CollectedStream<T>& stream = streams_.emplace_back();
    stream.columns = spec.columns[s];
    stream.waiting.resize(spec.parts());
    for (std::size_t part = 0; part < spec.parts(); ++part)
      stream.sums.emplace_back(grid, spec.columns[s], spec.blocks[s],
                               spec.summed.empty() ? spec.columns[s] : spec.summed[s]);
  }
}

template <class T>
T* Collector<T>::add_rows(std::size_t stream, Part part, std::int64_t tokens) {
  CollectedStream<T>& state = streams_.at(stream);
  WaitingRows<T>& buffer = state.waiting.at(static_cast<std::size_t>(part));
  const std::int64_t before = buffer.tokens;
  buffer.tokens += tokens;
  if (buffer.rows.capacity() < buffer.tokens * state.columns) {
    LargeArray<T> larger;
    larger.reserve((std::max(buffer.tokens, panel_tokens_ / grid_->comm().size()) + tokens) * state.columns);
    std::copy_n(buffer.rows.data(), before * state.columns, larger.data());
    buffer.rows = std::move(larger);
  }
  return buffer.rows.data() + before * state.columns;
}

template <class T>
void Collector<T>::end_round(Part part, std::int64_t tokens) {
  std::int64_t& waiting = waiting_tokens_.at(static_cast<std::size_t>(part));
  waiting += tokens;
  if (waiting >= panel_tokens_) flush(static_cast<std::size_t>(part));
}

template <class T>
void Collector<T>::flush(std::size_t part) {
  waiting_tokens_[part] = 0;
  for (CollectedStream<T>& stream : streams_) {
    WaitingRows<T>& buffer = stream.waiting[part];
    if (stream.shift.empty())
      stream.shift = provisional_mean(grid_->comm(), buffer.rows.data(), buffer.tokens, stream.columns);
    const int panels = panel_count(grid_->comm(), buffer.tokens, panel_tokens_);
    for (int panel = 0; panel < panels; ++panel) {
      const Range tokens = range_of(buffer.tokens, panels, panel);
      const T* rows = buffer.rows.data() + tokens.first * stream.columns;
      updater_.add(stream.sums[part], rows, tokens.count, stream.shift);
    }
    buffer.tokens = 0;
  }
}

template <class T>
void Collector<T>::drain() {
  updater_.drain();
}

template <class T>
std::vector<StreamGrams> Collector<T>::finish() {
  for (std::size_t part = 0; part < waiting_tokens_.size(); ++part)
    if (waiting_tokens_[part] > 0) flush(part);
  drain();
  std::vector<StreamGrams> grams;
  for (CollectedStream<T>& stream : streams_) {
    stream.shift.resize(to_size(stream.columns), 0.0);
    stream.waiting.clear();
    grams.push_back({headspan::finish(std::move(stream.sums[0]), stream.shift), {}});
    if (stream.sums.size() > 1)
      grams.back().heldout = headspan::finish(std::move(stream.sums[1]), stream.shift);
  }
  return grams;
}

template std::int64_t panel_tokens<double>(const GridShape&, const std::vector<std::int64_t>&, Precision,
                                           bool);
template std::int64_t panel_tokens<float>(const GridShape&, const std::vector<std::int64_t>&, Precision,
                                          bool);
template class Collector<double>;
template class Collector<float>;

}  // namespace headspan
