#include "stats/collector.h"

#include <utility>

namespace headspan {
namespace {

using AnyUpdater = std::variant<GramUpdater<double>, GramUpdater<float>>;

AnyUpdater make_updater(const Grid& grid, Precision precision) {
  if (precision == Precision::float64)
    return AnyUpdater(std::in_place_type<GramUpdater<double>>, grid, precision);
  return AnyUpdater(std::in_place_type<GramUpdater<float>>, grid, precision);
}

}  // namespace

template <class T>
Collector<T>::Collector(const Grid& grid, const std::vector<std::int64_t>& columns,
                        const std::vector<std::int64_t>& blocks, Precision precision, bool heldout,
                        std::int64_t panel_tokens)
    : grid_(&grid),
      panel_tokens_(panel_tokens),
      waiting_tokens_(heldout ? 2 : 1, 0),
      updater_(make_updater(grid, precision)) {
  for (std::size_t s = 0; s < columns.size(); ++s) {
    StreamState& stream = streams_.emplace_back(StreamState{columns[s], {}, {}, {}});
    stream.waiting.resize(waiting_tokens_.size());
    for (std::size_t part = 0; part < waiting_tokens_.size(); ++part)
      stream.sums.emplace_back(grid, columns[s], blocks[s]);
  }
}

template <class T>
T* Collector<T>::add_rows(std::size_t stream, Part part, std::int64_t tokens) {
  StreamState& state = streams_.at(stream);
  Buffer& buffer = state.waiting.at(static_cast<std::size_t>(part));
  const std::int64_t before = buffer.tokens;
  buffer.tokens += tokens;
  const auto values = static_cast<std::size_t>(buffer.tokens * state.columns);
  if (buffer.rows.capacity() <
      values)  // once, with room for a panel that is nearly full: growing would double
    buffer.rows.reserve(static_cast<std::size_t>((panel_tokens_ + tokens) * state.columns));
  buffer.rows.resize(values);
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
  for (StreamState& stream : streams_) {
    Buffer& buffer = stream.waiting[part];
    if (stream.shift.empty())
      stream.shift = provisional_mean(grid_->comm(), buffer.rows.data(), buffer.tokens, stream.columns);
    std::visit(
        [&](auto& updater) {
          updater.add(stream.sums[part], buffer.rows.data(), buffer.tokens, stream.shift);
        },
        updater_);
    buffer.tokens = 0;
  }
}

template <class T>
std::vector<StreamGrams> Collector<T>::finish() {
  for (std::size_t part = 0; part < waiting_tokens_.size(); ++part)
    if (waiting_tokens_[part] > 0) flush(part);
  std::visit([](auto& updater) { updater.drain(); }, updater_);
  std::vector<StreamGrams> grams;
  for (StreamState& stream : streams_) {
    stream.shift.resize(static_cast<std::size_t>(stream.columns), 0.0);
    stream.waiting.clear();
    StreamGrams& pair =
        grams.emplace_back(StreamGrams{headspan::finish(std::move(stream.sums[0]), stream.shift), {}});
    if (stream.sums.size() > 1) pair.heldout = headspan::finish(std::move(stream.sums[1]), stream.shift);
  }
  return grams;
}

template class Collector<double>;
template class Collector<float>;

}  // namespace headspan
