#include "device/device_collector.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <ATen/ATen.h>

#include "base/range.h"
#include "device/device_values.h"
#include "device/side_stream.h"

namespace headspan {
namespace {

template <class T>
at::Tensor view_of(T* values, std::vector<std::int64_t> shape) {
  return at::from_blob(values, shape, at::CppTypeToScalarType<T>::value);
}

}  // namespace

template <class T>
DeviceCollector<T>::DeviceCollector(const Grid& grid, const DeviceComm& comm,
                                    const std::vector<std::int64_t>& columns,
                                    const std::vector<std::int64_t>& blocks, Precision precision,
                                    bool heldout, at::Device device, at::ScalarType values,
                                    std::int64_t stripe)
    : grid_(&grid),
      comm_(&comm),
      columns_(columns),
      blocks_(blocks),
      precision_(precision),
      device_(device),
      values_(values),
      panel_tokens_(panel_tokens<T>(grid.shape(), columns, precision, heldout)),
      stripe_(stripe),
      waiting_tokens_(heldout ? 2 : 1, 0) {}

template <class T>
void DeviceCollector<T>::begin(const DeviceShare& share) {
  end_share();
  share_ = share;
  for (const std::size_t s : share.streams) {
    Stream& stream = streams_.emplace(s, make_stream(s)).first->second;
    if (host_ && !host_->stream(s).shift.empty()) set_shift(stream, host_->stream(s).shift);
  }
}

template <class T>
typename DeviceCollector<T>::Stream DeviceCollector<T>::make_stream(std::size_t stream) const {
  const std::int64_t columns = columns_.at(stream), block = blocks_.at(stream);
  Stream made{DeviceExchange(*grid_, *comm_, columns, block, device_), {}, {}, {}, {}};
  made.sums.resize(waiting_tokens_.size());
  made.waiting.resize(waiting_tokens_.size());
  for (const Part part : share_.parts)
    made.sums.at(static_cast<std::size_t>(part)).sum =
        at::zeros({columns}, at::dtype(at::kDouble).device(device_));
  return made;
}

/// Makes its Grams, once the share before has left the device.
template <class T>
void DeviceCollector<T>::open_share() {
  wait_for_copies();
  for (auto& [s, stream] : streams_)
    for (const Part part : share_.parts)
      if (Sums& sums = stream.sums.at(static_cast<std::size_t>(part)); !sums.gram)
        sums.gram.emplace(*grid_, columns_.at(s), blocks_.at(s), device_, stripe_, share_.piece);
}

template <class T>
void DeviceCollector<T>::flush_all() {
  open_share();  // where nothing waits too
  for (std::size_t part = 0; part < waiting_tokens_.size(); ++part)
    if (waiting_tokens_[part] > 0) flush(part);
}

/// What it has gathered begins to go to the host, beside what the device is given next.
template <class T>
void DeviceCollector<T>::end_share() {
  flush_all();
  if (streams_.empty()) return;
  for (auto& [s, stream] : streams_) {
    host().stream(s).shift = stream.shift;
    copy_waiting(s);
    stream.waiting.clear();  // those of the next share take its place
  }
  leaving_.streams = std::move(streams_);
  streams_.clear();
  wait_for(device_);
  leaving_.copies = std::async(std::launch::async, [this, parts = share_.parts] {
    const OnStream beside(side_stream(device_));
    for (const auto& [s, stream] : leaving_.streams) copy_sums(stream, parts, host_->stream(s));
  });
}

/// Until the share before is on the host; gives its memory back.
template <class T>
void DeviceCollector<T>::wait_for_copies() {
  if (!leaving_.copies.valid()) return;
  leaving_.copies.get();
  leaving_.streams.clear();
  release_unused(device_);  // the next pass takes other sizes
}

template <class T>
at::Tensor DeviceCollector<T>::add_rows(std::size_t stream, Part part, std::int64_t tokens) {
  Waiting& buffer = streams_.at(stream).waiting.at(static_cast<std::size_t>(part));
  const std::int64_t before = buffer.tokens, room = buffer.rows.defined() ? buffer.rows.size(0) : -1;
  buffer.tokens += tokens;
  if (room < buffer.tokens) {
    const at::Tensor larger =
        at::empty({std::max(buffer.tokens, panel_tokens_ / grid_->comm().size()) + tokens, columns_[stream]},
                  at::dtype(values_).device(device_));
    if (before > 0) larger.narrow(0, 0, before).copy_(buffer.rows.narrow(0, 0, before));
    buffer.rows = larger;
  }
  return buffer.rows.narrow(0, before, tokens);
}

template <class T>
void DeviceCollector<T>::end_round(Part part, std::int64_t tokens) {
  std::int64_t& waiting = waiting_tokens_.at(static_cast<std::size_t>(part));
  waiting += tokens;
  if (waiting >= panel_tokens_) flush(static_cast<std::size_t>(part));
}

template <class T>
void DeviceCollector<T>::flush(std::size_t part) {
  open_share();
  waiting_tokens_[part] = 0;
  for (auto& [s, stream] : streams_) {
    const at::Tensor rows = add_rows(s, static_cast<Part>(part), 0);  // makes room where nothing came
    Waiting& buffer = stream.waiting[part];
    const at::Tensor waiting = buffer.rows.narrow(0, 0, buffer.tokens);
    if (stream.shift.empty()) set_shift(stream, mean_of(waiting));
    // In as many steps as a Collector takes.
    const double share = static_cast<double>(panel_tokens_) / grid_->comm().size();
    const auto panels = static_cast<int>(std::lround(static_cast<double>(buffer.tokens) / share));
    const int steps = grid_->comm().max(std::max(1, panels));
    for (int step = 0; step < steps; ++step) {
      const Range mine = range_of(buffer.tokens, steps, step);
      add_panel(stream, part, waiting.narrow(0, mine.first, mine.count));
    }
    buffer.tokens = 0;
  }
  multiply();
}

/// As provisional_mean has it.
template <class T>
std::vector<double> DeviceCollector<T>::mean_of(const at::Tensor& rows) const {
  const at::Tensor sums = at::sum(rows, at::IntArrayRef{0}, false, at::kDouble).to(at::kCPU).contiguous();
  std::vector<double> mean(sums.data_ptr<double>(), sums.data_ptr<double>() + sums.numel());
  std::int64_t total = rows.size(0);
  grid_->comm().sum(&total, 1);
  grid_->comm().sum(mean.data(), rows.size(1));
  if (total > 0)
    for (double& value : mean) value /= static_cast<double>(total);
  return mean;
}

template <class T>
void DeviceCollector<T>::set_shift(Stream& stream, std::vector<double> shift) {
  stream.shift = std::move(shift);
  stream.device_shift =
      view_of(stream.shift.data(), {static_cast<std::int64_t>(stream.shift.size())}).clone().to(device_);
}

template <class T>
void DeviceCollector<T>::add_panel(Stream& stream, std::size_t part, const at::Tensor& rows) {
  Sums& sums = stream.sums[part];
  at::Tensor values = at::empty(rows.sizes(), at::dtype(panel_type(precision_)).device(device_));
  shift_values(rows, stream.device_shift, precision_, values);
  sums.sum.add_(at::sum(values, at::IntArrayRef{0}, false, at::kDouble));
  Pending next{&stream, &sums, stream.exchange.begin(values)};
  multiply();
  pending_ = std::move(next);
  if (grid_->comm().size() == 1) multiply();  // nothing to overlap: one panel's memory is enough
}

/// Adds the panel that is under way, if there is one.
template <class T>
void DeviceCollector<T>::multiply() {
  if (!pending_) return;
  const DeviceOperands operands = pending_->stream->exchange.finish(pending_->panel);
  pending_->sums->gram->add(operands.rows, operands.columns, precision_);
  pending_->sums->tokens += operands.rows.size(0);
  pending_.reset();
}

/// What was copied there to be saved.
template <class T>
void DeviceCollector<T>::forget_on_host(std::size_t s) {
  CollectedStream<T>& copy = host_->stream(s);
  for (const Part part : share_.parts) {
    const auto p = static_cast<std::size_t>(part);
    copy.sums[p] = GramSums(*grid_, columns_[s], blocks_[s]);
    copy.waiting[p] = {};
    host_->set_waiting(part, 0);
  }
}

template <class T>
std::map<std::size_t, ResidentGrams> DeviceCollector<T>::release_resident() {
  std::map<std::size_t, ResidentGrams> resident;
  if (share_.piece.of > 1 || share_.parts.size() < waiting_tokens_.size()) return resident;
  flush_all();
  for (auto& [s, stream] : streams_) {
    std::vector<ResidentSums> parts;
    for (Sums& sums : stream.sums) {
      GramSums host(*grid_, columns_[s], blocks_[s]);
      view_of(host.sum.data(), {columns_[s]}).copy_(sums.sum);
      host.tokens = sums.tokens;
      parts.push_back({std::move(*sums.gram), std::move(host)});
    }
    resident.emplace(s, ResidentGrams(std::move(parts), std::move(stream.shift)));
    if (host_) forget_on_host(s);
  }
  streams_.clear();
  return resident;
}

template <class T>
std::vector<StreamGrams> DeviceCollector<T>::finish() {
  end_share();
  wait_for_copies();
  std::vector<StreamGrams> grams = host().finish();
  host_.reset();
  return grams;
}

template <class T>
Collector<T>& DeviceCollector<T>::host() {
  if (!host_)
    host_ = std::make_unique<Collector<T>>(*grid_, columns_, blocks_, precision_, waiting_tokens_.size() > 1);
  return *host_;
}

template <class T>
Collector<T>& DeviceCollector<T>::on_host() {
  open_share();
  for (const auto& [s, stream] : streams_) {
    CollectedStream<T>& copy = host().stream(s);
    copy.shift = stream.shift;
    copy_sums(stream, share_.parts, copy);
    copy_waiting(s);
  }
  return host();
}

template <class T>
void DeviceCollector<T>::copy_sums(const Stream& from, const std::vector<Part>& parts,
                                   CollectedStream<T>& to) {
  for (const Part part : parts) {
    const Sums& sums = from.sums[static_cast<std::size_t>(part)];
    GramSums& copy = to.sums[static_cast<std::size_t>(part)];
    sums.gram->copy_to(copy.matrix);
    view_of(copy.sum.data(), {sums.sum.numel()}).copy_(sums.sum);
    copy.tokens = sums.tokens;
  }
}

/// The rows that no panel has had yet.
template <class T>
void DeviceCollector<T>::copy_waiting(std::size_t s) {
  for (const Part part : share_.parts) {
    const auto p = static_cast<std::size_t>(part);
    host_->stream(s).waiting[p] = {};
    const Waiting& waiting = streams_.at(s).waiting[p];
    T* const rows = host_->add_rows(s, part, waiting.tokens);
    if (waiting.tokens > 0)
      view_of(rows, {waiting.tokens, columns_[s]}).copy_(waiting.rows.narrow(0, 0, waiting.tokens));
    host_->set_waiting(part, waiting_tokens_[p]);
  }
}

template <class T>
void DeviceCollector<T>::take() {
  open_share();
  for (auto& [s, stream] : streams_) {
    CollectedStream<T>& from = host().stream(s);
    for (const Part part : share_.parts) {
      const auto p = static_cast<std::size_t>(part);
      Sums& sums = stream.sums[p];
      sums.gram->copy_from(from.sums[p].matrix);
      sums.sum.copy_(view_of(from.sums[p].sum.data(), {columns_[s]}));
      sums.tokens = from.sums[p].tokens;
      const std::int64_t tokens = from.waiting[p].tokens;
      at::Tensor rows = add_rows(s, part, tokens);
      if (tokens > 0) rows.copy_(view_of(from.waiting[p].rows.data(), {tokens, columns_[s]}));
      waiting_tokens_[p] = tokens;
      grid_->comm().sum(&waiting_tokens_[p], 1);
    }
  }
}

template class DeviceCollector<double>;
template class DeviceCollector<float>;

}  // namespace headspan
