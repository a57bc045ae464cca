#include "stats/gram/collector.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/range.h"

namespace headspan {
namespace {

using AnyUpdater = std::variant<GramUpdater<double>, GramUpdater<float>>;

AnyUpdater make_updater(const Grid& grid, Precision precision) {
  if (multiplies_doubles(precision))
    return AnyUpdater(std::in_place_type<GramUpdater<double>>, grid, precision);
  return AnyUpdater(std::in_place_type<GramUpdater<float>>, grid, precision);
}

}  // namespace

template <class T>
std::int64_t panel_tokens(const GridShape& grid, const std::vector<std::int64_t>& columns,
                          Precision precision, bool heldout) {
  const auto ranks = static_cast<double>(grid.rows * grid.columns), rows = static_cast<double>(grid.rows),
             grid_columns = static_cast<double>(grid.columns);
  const double parts = heldout ? 2 : 1;
  const double product_bytes = multiplies_doubles(precision) ? sizeof(double) : sizeof(float);
  double gram_bytes = 0, waiting = 0, widest = 0;
  for (const std::int64_t count : columns) {
    const auto width = static_cast<double>(count);
    gram_bytes += parts * sizeof(double) * width * width / ranks;
    waiting += parts * sizeof(T) * width / ranks;
    widest = std::max(widest, width);
  }
  // One operand on one rank; on several two at most, of this panel and of the one before.
  const double operands = ranks == 1 ? 1 : 2 / rows + 2 / grid_columns;
  const double token_bytes = waiting + operands * product_bytes * widest;
  const double room = std::max(gram_bytes / 8, 128.0 * (1 << 20));
  return std::clamp(static_cast<std::int64_t>(room / token_bytes) / 256 * 256, std::int64_t{512},
                    std::int64_t{4096});
}

template <class T>
Collector<T>::Collector(const Grid& grid, const std::vector<std::int64_t>& columns,
                        const std::vector<std::int64_t>& blocks, Precision precision, bool heldout)
    : grid_(&grid),
      panel_tokens_(panel_tokens<T>(grid.shape(), columns, precision, heldout)),
      waiting_tokens_(heldout ? 2 : 1, 0),
      updater_(make_updater(grid, precision)) {
  for (std::size_t s = 0; s < columns.size(); ++s) {
    CollectedStream<T>& stream = streams_.emplace_back();
    stream.columns = columns[s];
    stream.waiting.resize(waiting_tokens_.size());
    for (std::size_t part = 0; part < waiting_tokens_.size(); ++part)
      stream.sums.emplace_back(grid, columns[s], blocks[s]);
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
    // A round of many ranks brings several panels' tokens: in as many steps, none above one panel and a half.
    const double share = static_cast<double>(panel_tokens_) / grid_->comm().size();
    const auto panels = static_cast<int>(std::lround(static_cast<double>(buffer.tokens) / share));
    const int steps = grid_->comm().max(std::max(1, panels));
    for (int step = 0; step < steps; ++step) {
      const Range mine = range_of(buffer.tokens, steps, step);
      const T* rows = buffer.rows.data() + mine.first * stream.columns;
      std::visit([&](auto& updater) { updater.add(stream.sums[part], rows, mine.count, stream.shift); },
                 updater_);
    }
    buffer.tokens = 0;
  }
}

template <class T>
void Collector<T>::settle() {
  std::visit([](auto& updater) { updater.drain(); }, updater_);
}

template <class T>
std::vector<StreamGrams> Collector<T>::finish() {
  for (std::size_t part = 0; part < waiting_tokens_.size(); ++part)
    if (waiting_tokens_[part] > 0) flush(part);
  settle();
  std::vector<StreamGrams> grams;
  for (CollectedStream<T>& stream : streams_) {
    stream.shift.resize(static_cast<std::size_t>(stream.columns), 0.0);
    stream.waiting.clear();
    StreamGrams& pair =
        grams.emplace_back(StreamGrams{headspan::finish(std::move(stream.sums[0]), stream.shift), {}});
    if (stream.sums.size() > 1) pair.heldout = headspan::finish(std::move(stream.sums[1]), stream.shift);
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
