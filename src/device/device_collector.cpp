#include "device/device_collector.h"

#include <algorithm>
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
DeviceCollector<T>::DeviceCollector(const Grid& grid, const DeviceComm& comm, GramSpec spec,
                                    at::Device device, at::ScalarType values, std::int64_t stripe)
    : grid_(&grid),
      comm_(&comm),
      spec_(std::move(spec)),
      device_(device),
      values_(values),
      panel_tokens_(panel_tokens<T>(grid.shape(), spec_.columns, spec_.precision, spec_.heldout)),
      stripe_(stripe),
      waiting_tokens_(spec_.parts(), 0) {}

template <class T>
void DeviceCollector<T>::start_share(const DeviceShare& share) {
  end_share();
  share_ = share;
  for (const std::size_t s : share.streams) {
    Stream& stream = streams_.emplace(s, make_stream(s)).first->second;
    if (host_ && !host_->stream(s).shift.empty()) set_shift(stream, host_->stream(s).shift);
  }
}

template <class T>
typename DeviceCollector<T>::Stream DeviceCollector<T>::make_stream(std::size_t stream) const {
  const std::int64_t columns = spec_.columns.at(stream), block = spec_.blocks.at(stream);
  Stream made{DeviceExchange(*grid_, *comm_, columns, block, device_), {}, {}, {}, {}};
  made.sums.resize(waiting_tokens_.size());
  made.waiting.resize(waiting_tokens_.size());
  for (const Part part : share_.parts)
    made.sums.at(static_cast<std::size_t>(part)).sum =
        at::zeros({columns}, at::dtype(at::kDouble).device(device_));
  return made;
}

/// Allocates the share's Grams if they are not allocated yet, after the previous share has left the device.
template <class T>
void DeviceCollector<T>::allocate_grams() {
  finish_download();
  for (auto& [s, stream] : streams_)
    for (const Part part : share_.parts)
      if (Sums& sums = stream.sums.at(static_cast<std::size_t>(part)); !sums.gram)
        sums.gram.emplace(*grid_, spec_.columns[s], spec_.blocks[s], device_, stripe_, share_.slice);
}

template <class T>
void DeviceCollector<T>::flush_all() {
  allocate_grams();  // even if no rows are waiting
  for (std::size_t part = 0; part < waiting_tokens_.size(); ++part)
    if (waiting_tokens_[part] > 0) flush(part);
}

/// Flushes the share and starts to copy it to the host, while the device computes what comes next.
template <class T>
void DeviceCollector<T>::end_share() {
  flush_all();
  if (streams_.empty()) return;
  for (auto& [s, stream] : streams_) {
    host().stream(s).shift = stream.shift;
    copy_waiting(s);
    stream.waiting.clear();  // the next share needs the memory
  }
  download_.streams = std::move(streams_);
  streams_.clear();
  wait_for(device_);
  download_.done = std::async(std::launch::async, [this, parts = share_.parts] {
    const OnStream beside(side_stream(device_));
    for (const auto& [s, stream] : download_.streams) copy_sums(stream, parts, host_->stream(s));
  });
}

/// Waits until the previous share is on the host, and frees its memory on the device.
template <class T>
void DeviceCollector<T>::finish_download() {
  if (!download_.done.valid()) return;
  download_.done.get();
  download_.streams.clear();
  release_unused(device_);  // the next pass allocates other sizes
}

template <class T>
at::Tensor DeviceCollector<T>::add_rows(std::size_t stream, Part part, std::int64_t tokens) {
  Waiting& buffer = streams_.at(stream).waiting.at(static_cast<std::size_t>(part));
  const std::int64_t before = buffer.tokens, room = buffer.rows.defined() ? buffer.rows.size(0) : -1;
  buffer.tokens += tokens;
  if (room < buffer.tokens) {
    const at::Tensor larger = at::empty(
        {std::max(buffer.tokens, panel_tokens_ / grid_->comm().size()) + tokens, spec_.columns[stream]},
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
  allocate_grams();
  waiting_tokens_[part] = 0;
  for (auto& [s, stream] : streams_) {
    add_rows(s, static_cast<Part>(part), 0);  // allocates the buffer where no rows have arrived
    Waiting& buffer = stream.waiting[part];
    const at::Tensor waiting = buffer.rows.narrow(0, 0, buffer.tokens);
    if (stream.shift.empty()) {
      const at::Tensor sums = at::sum(waiting, at::IntArrayRef{0}, false, at::kDouble);
      set_shift(stream, mean_over_ranks(grid_->comm(), to_vector(sums), buffer.tokens));
    }
    const int panels = panel_count(grid_->comm(), buffer.tokens, panel_tokens_);
    for (int panel = 0; panel < panels; ++panel) {
      const Range tokens = range_of(buffer.tokens, panels, panel);
      add_panel(stream, part, waiting.narrow(0, tokens.first, tokens.count));
    }
    buffer.tokens = 0;
  }
  multiply();
}

template <class T>
void DeviceCollector<T>::set_shift(Stream& stream, const std::vector<double>& shift) {
  stream.shift = shift;
  stream.device_shift = at::tensor(stream.shift, at::kDouble).to(device_);
}

template <class T>
void DeviceCollector<T>::add_panel(Stream& stream, std::size_t part, const at::Tensor& rows) {
  Sums& sums = stream.sums[part];
  at::Tensor values = at::empty(rows.sizes(), at::dtype(panel_type(spec_.precision)).device(device_));
  shift_values(rows, stream.device_shift, spec_.precision, values);
  sums.sum.add_(at::sum(values, at::IntArrayRef{0}, false, at::kDouble));
  Pending next{&stream, &sums, stream.exchange.start(values)};
  multiply();
  pending_ = std::move(next);
  if (grid_->comm().size() == 1) multiply();  // nothing to overlap: one panel is enough
}

/// Multiplies the panel that is being exchanged, if there is one.
template <class T>
void DeviceCollector<T>::multiply() {
  if (!pending_) return;
  const DeviceOperands operands = pending_->stream->exchange.finish(pending_->panel);
  pending_->sums->gram->add(operands.rows, operands.columns, spec_.precision);
  pending_->sums->tokens += operands.rows.size(0);
  pending_.reset();
}

/// Clears what was copied to the host for saving.
template <class T>
void DeviceCollector<T>::clear_on_host(std::size_t s) {
  CollectedStream<T>& copy = host_->stream(s);
  for (const Part part : share_.parts) {
    const auto p = static_cast<std::size_t>(part);
    copy.sums[p] = GramSums(*grid_, spec_.columns[s], spec_.blocks[s]);
    copy.waiting[p] = {};
    host_->set_waiting(part, 0);
  }
}

template <class T>
std::map<std::size_t, ResidentGrams> DeviceCollector<T>::release_resident() {
  std::map<std::size_t, ResidentGrams> resident;
  if (share_.slice.of > 1 || share_.parts.size() < waiting_tokens_.size()) return resident;
  flush_all();
  for (auto& [s, stream] : streams_) {
    std::vector<ResidentSums> parts;
    for (Sums& sums : stream.sums) {
      GramSums host(*grid_, spec_.columns[s], spec_.blocks[s]);
      host.sum = to_vector(sums.sum);
      host.tokens = sums.tokens;
      parts.push_back({std::move(*sums.gram), std::move(host)});
    }
    resident.emplace(s, ResidentGrams(std::move(parts), std::move(stream.shift)));
    if (host_) clear_on_host(s);
  }
  streams_.clear();
  return resident;
}

template <class T>
std::vector<StreamGrams> DeviceCollector<T>::finish() {
  end_share();
  finish_download();
  std::vector<StreamGrams> grams = host().finish();
  host_.reset();
  return grams;
}

template <class T>
Collector<T>& DeviceCollector<T>::host() {
  if (!host_) host_ = std::make_unique<Collector<T>>(*grid_, spec_);
  return *host_;
}

template <class T>
Collector<T>& DeviceCollector<T>::copy_to_host() {
  allocate_grams();
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
    copy.sum = to_vector(sums.sum);
    copy.tokens = sums.tokens;
  }
}

/// Copies the rows that wait for the next panel.
template <class T>
void DeviceCollector<T>::copy_waiting(std::size_t s) {
  for (const Part part : share_.parts) {
    const auto p = static_cast<std::size_t>(part);
    host_->stream(s).waiting[p] = {};
    const Waiting& waiting = streams_.at(s).waiting[p];
    T* const rows = host_->add_rows(s, part, waiting.tokens);
    if (waiting.tokens > 0)
      view_of(rows, {waiting.tokens, spec_.columns[s]}).copy_(waiting.rows.narrow(0, 0, waiting.tokens));
    host_->set_waiting(part, waiting_tokens_[p]);
  }
}

template <class T>
void DeviceCollector<T>::upload() {
  allocate_grams();
  for (auto& [s, stream] : streams_) {
    CollectedStream<T>& from = host().stream(s);
    for (const Part part : share_.parts) {
      const auto p = static_cast<std::size_t>(part);
      Sums& sums = stream.sums[p];
      sums.gram->copy_from(from.sums[p].matrix);
      sums.sum.copy_(at::tensor(from.sums[p].sum, at::kDouble));
      sums.tokens = from.sums[p].tokens;
      const std::int64_t tokens = from.waiting[p].tokens;
      at::Tensor rows = add_rows(s, part, tokens);
      if (tokens > 0) rows.copy_(view_of(from.waiting[p].rows.data(), {tokens, spec_.columns[s]}));
      waiting_tokens_[p] = tokens;
      grid_->comm().sum(&waiting_tokens_[p], 1);
    }
  }
}

template class DeviceCollector<double>;
template class DeviceCollector<float>;

}  // namespace headspan
