#include "model/device_cache/device_block.h"

#include <ATen/ATen.h>

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

DeviceBlock::DeviceBlock(const std::vector<DeviceBand>& bands, std::int64_t sequences, at::ScalarType plain,
                         at::Device device)
    : bands_(&bands) {
  const auto empty = [&](std::int64_t width, at::ScalarType type) {
    return at::empty({sequences, 0, width}, at::dtype(type).device(device));
  };
  for (const DeviceBand& band : bands)
    stored_.push_back(
        band.codes ? Stored{empty(band.codes->bytes(), at::kByte), empty(band.codes->scales(), at::kHalf)}
                   : Stored{empty(band.columns, plain), {}});
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

void DeviceBlock::store(const at::Tensor& z, const at::Tensor& slots) {
  for (std::size_t b = 0; b < stored_.size(); ++b) {
    const DeviceBand& band = (*bands_)[b];
    const Stored& stored = stored_[b];
    const at::Tensor columns = z.narrow(1, band.first, band.columns);
    if (!band.codes) {
      by_slot(stored.numbers).index_copy_(0, slots, columns.to(stored.numbers.scalar_type()));
      continue;
    }
    const PackedRows packed = band.codes->pack(columns);
    by_slot(stored.numbers).index_copy_(0, slots, packed.bytes);
    by_slot(stored.scales).index_copy_(0, slots, packed.scales);
  }
}

StoredNumbers DeviceBlock::read(const BandMap& map, std::int64_t first_sequence, std::int64_t sequences,
                                std::int64_t first, std::int64_t tokens, at::ScalarType type) const {
  const DeviceBand& band = (*bands_)[map.band];
  const auto part = [&](const at::Tensor& x) {
    return x.narrow(0, first_sequence, sequences).narrow(1, first, tokens);
  };
  const Stored& stored = stored_[map.band];
  if (!band.codes) return {part(stored.numbers).narrow(2, map.first, map.count).to(type), {}};
  return {band.codes->unpack(part(stored.numbers), type), band.codes->read_scales(part(stored.scales))};
}

at::Tensor DeviceBlock::read_slots(const BandMap& map, const at::Tensor& slots, at::ScalarType type) const {
  const DeviceBand& band = (*bands_)[map.band];
  const Stored& stored = stored_[map.band];
  const at::Tensor numbers = by_slot(stored.numbers).index_select(0, slots);
  if (!band.codes) return numbers.narrow(1, map.first, map.count).to(type);
  const CodeScales scales = band.codes->read_scales(by_slot(stored.scales).index_select(0, slots));
  const at::Tensor step = scales.step.to(type).unsqueeze(1), base = scales.base.to(type).unsqueeze(1);
  return band.codes->unpack(numbers, type).mul_(step).add_(base * band.codes->lowest().to(type));
}

}  // namespace headspan
