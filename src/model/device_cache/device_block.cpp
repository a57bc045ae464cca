#include "model/device_cache/device_block.h"

#include <cmath>

#include <ATen/ATen.h>

#include "model/cache/gain_search.h"

namespace headspan {
namespace {

/// Returns [sequences, room, width] as rows, one for each slot.
at::Tensor by_slot(const at::Tensor& stored) { return stored.view({-1, stored.size(2)}); }

at::Tensor with_room(const at::Tensor& stored, std::int64_t room) {
  at::Tensor larger = at::zeros({stored.size(0), room, stored.size(2)}, stored.options());
  larger.narrow(1, 0, stored.size(1)).copy_(stored);
  return larger;
}

}  // namespace

DeviceBlock::DeviceBlock(const DeviceLayer& layer, std::int64_t sequences, at::ScalarType plain,
                         at::Device device)
    : layer_(&layer) {
  const auto empty = [&](std::int64_t width, at::ScalarType type) {
    return at::empty({sequences, 0, width}, at::dtype(type).device(device));
  };
  for (const DeviceBand& band : layer.bands) {
    Stored& stored = stored_.emplace_back();
    stored.numbers = band.codes ? empty(band.codes->bytes(), at::kByte) : empty(band.columns, plain);
    if (band.codes && !band.codes->band().follows) stored.scales = empty(band.codes->scales(), at::kHalf);
  }
}

std::int64_t DeviceBlock::allocated_bytes() const {
  std::size_t bytes = 0;
  for (const Stored& stored : stored_)
    bytes += stored.numbers.nbytes() + (stored.scales.defined() ? stored.scales.nbytes() : 0);
  return static_cast<std::int64_t>(bytes);
}

void DeviceBlock::reserve(std::int64_t tokens) {
  if (tokens <= room_) return;
  room_ = room_for(tokens);
  for (Stored& stored : stored_) {
    stored.numbers = with_room(stored.numbers, room_);
    if (stored.scales.defined()) stored.scales = with_room(stored.scales, room_);
  }
}

/// Returns the gain of each row of z, [rows, 1] in float16: GainSearch::choose on the device.
at::Tensor DeviceBlock::choose_gain(const at::Tensor& z) const {
  const at::Tensor wide = z.to(at::kDouble), squares = at::zeros({z.size(0), 1}, wide.options());
  const at::Tensor weights = layer_->weights;
  for (const DeviceBand& band : layer_->bands)
    squares.add_((wide.narrow(1, band.first, band.columns) * normal_step(band.codes->band().bits))
                     .square()
                     .sum(1, true));
  const at::Tensor mean = (squares / z.size(1)).sqrt();
  std::vector<at::Tensor> gains, errors;
  for (const double multiple : kGainMultiples) {
    constexpr double kLargest = 65504;
    const at::Tensor gain = (mean * multiple).clamp_max(kLargest).to(at::kFloat).to(at::kHalf);
    const at::Tensor step = gain.to(at::kDouble), error = at::zeros_like(squares);
    const at::Tensor inverse = at::where(step != 0, step.reciprocal(), at::zeros_like(step));
    for (const DeviceBand& band : layer_->bands) {
      const at::Tensor columns = wide.narrow(1, band.first, band.columns);
      const double codes = std::exp2(band.codes->band().bits), lowest = 0.5 - codes / 2;
      const at::Tensor read = ((columns * inverse - lowest).round().clamp(0, codes - 1) + lowest) * step;
      error.add_(((columns - read).square() * weights.narrow(0, band.first, band.columns)).sum(1, true));
    }
    gains.push_back(gain);
    errors.push_back(error);
  }
  return at::cat(gains, 1).gather(1, at::cat(errors, 1).argmin(1, true));
}

void DeviceBlock::store(const at::Tensor& z, const at::Tensor& slots) {
  const bool has_gain = !layer_->bands.empty() && layer_->bands.front().has_gain();
  const at::Tensor gain = has_gain ? choose_gain(z) : at::Tensor();
  for (std::size_t b = 0; b < stored_.size(); ++b) {
    const DeviceBand& band = layer_->bands[b];
    const Stored& stored = stored_[b];
    const at::Tensor columns = z.narrow(1, band.first, band.columns);
    if (!band.codes) {
      by_slot(stored.numbers).index_copy_(0, slots, columns.to(stored.numbers.scalar_type()));
      continue;
    }
    const PackedRows packed = band.codes->pack(columns, gain);
    by_slot(stored.numbers).index_copy_(0, slots, packed.bytes);
    if (stored.scales.defined()) by_slot(stored.scales).index_copy_(0, slots, packed.scales);
  }
}

StoredNumbers DeviceBlock::read(const BandMap& map, std::int64_t first_sequence, std::int64_t sequences,
                                std::int64_t first, std::int64_t tokens, at::ScalarType type) const {
  const DeviceBand& band = layer_->bands[map.band];
  const auto part = [&](const at::Tensor& x) {
    return x.narrow(0, first_sequence, sequences).narrow(1, first, tokens);
  };
  const Stored& stored = stored_[map.band];
  if (!band.codes) return {part(stored.numbers).narrow(2, map.first, map.count).to(type), {}};
  return {band.codes->unpack(part(stored.numbers), type), band.codes->read_scales(part(scales_of(map.band)))};
}

at::Tensor DeviceBlock::read_slots(const BandMap& map, const at::Tensor& slots, at::ScalarType type) const {
  const DeviceBand& band = layer_->bands[map.band];
  const Stored& stored = stored_[map.band];
  const at::Tensor numbers = by_slot(stored.numbers).index_select(0, slots);
  if (!band.codes) return numbers.narrow(1, map.first, map.count).to(type);
  const CodeScales scales = band.codes->read_scales(by_slot(scales_of(map.band)).index_select(0, slots));
  const at::Tensor step = scales.step.to(type).unsqueeze(1), base = scales.base.to(type).unsqueeze(1);
  return band.codes->unpack(numbers, type).mul_(step).add_(base * band.codes->lowest().to(type));
}

}  // namespace headspan
