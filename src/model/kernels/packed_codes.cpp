#include "model/kernels/packed_codes.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/ATen.h>

#include "base/checked.h"

namespace headspan {
namespace {

/// Converts to float16 through float32, as the host does. Values beyond its range become the largest one.
at::Tensor to_half(const at::Tensor& values) {
  constexpr double kLargest = 65504;
  return values.clamp(-kLargest, kLargest).to(at::kFloat).to(at::kHalf);
}

template <class T>
at::Tensor on_device(const std::vector<T>& values, at::ScalarType type, at::Device device) {
  return at::tensor(values, type).to(device);
}

}  // namespace

PackedCodes::PackedCodes(const Band& band, at::Device device) : band_(band) {
  constexpr std::int64_t kByte = 8;
  const std::int64_t bits = band.bits, bytes = (band.columns * bits + kByte - 1) / kByte;
  std::int64_t per_byte = 1;
  for (std::int64_t b = 0; b < bits; ++b)
    per_byte = std::max(per_byte, (kByte * b + kByte - 1) / bits - kByte * b / bits + 1);
  const std::size_t fields = to_size(bytes * per_byte);
  std::vector<std::int64_t> masks(fields, 0), columns(fields, 0);
  std::vector<double> units(fields, 0), inverse(fields, 0), lowest(fields, 0);
  for (std::int64_t b = 0; b < bytes; ++b)
    for (std::int64_t i = 0; i < per_byte; ++i) {
      const std::int64_t column = kByte * b / bits + i, from_byte = column * bits - kByte * b;
      if (column >= band.columns || from_byte >= kByte) continue;
      const std::size_t f = to_size(b * per_byte + i);
      const std::int64_t first = std::max<std::int64_t>(from_byte, 0),
                         last = std::min<std::int64_t>(from_byte + bits, kByte);
      masks[f] = (std::int64_t{1} << last) - (std::int64_t{1} << first);
      columns[f] = column;
      inverse[f] = std::exp2(from_byte);
      units[f] = 1 / inverse[f];
      lowest[f] = from_byte >= 0 ? inverse[f] : 0;
    }
  masks_ = on_device(masks, at::kByte, device).view({bytes, per_byte});
  columns_ = on_device(columns, at::kLong, device);
  units_ = on_device(units, at::kDouble, device);
  inverse_ = on_device(inverse, at::kDouble, device);
  lowest_ = on_device(lowest, at::kDouble, device);
}

/// smallest, largest: [rows, 1], float64.
at::Tensor PackedCodes::make_scales(const at::Tensor& smallest, const at::Tensor& largest) const {
  const double levels = std::exp2(band_.bits);
  if (band_.coding == Coding::range)
    return at::cat({to_half(smallest), to_half((largest - smallest) / (levels - 1))}, 1);
  const at::Tensor magnitude = at::maximum(smallest.abs(), largest.abs());
  if (band_.coding == Coding::symmetric) return to_half(magnitude / (levels / 2 - 0.5));
  HS_ASSERT(band_.coding == Coding::gguf);
  if (band_.bits == 8) return to_half(magnitude / (levels / 2 - 1));
  return to_half(at::where(largest > -smallest, -magnitude, magnitude) / (levels / 2));
}

PackedRows PackedCodes::pack(const at::Tensor& z, const at::Tensor& gain) const {
  HS_ASSERT(gain.defined() == (band_.coding == Coding::gain));
  const double levels = std::exp2(band_.bits);
  const auto clipped = [&](const at::Tensor& x) { return x.to(at::kDouble) * band_.clip; };
  const at::Tensor scales =
      gain.defined() ? gain : make_scales(clipped(z.amin({1}, true)), clipped(z.amax({1}, true)));
  const CodeScales rounded = read_scales(scales);
  const at::Tensor step = rounded.step.to(at::kDouble).unsqueeze(1);
  const at::Tensor inverse = at::where(step != 0, step.reciprocal(), at::zeros_like(step));
  const at::Tensor codes =
      ((z.to(at::kDouble) - rounded.base.unsqueeze(1)) * inverse).clamp_(0, levels - 1).round_();
  const at::Tensor fields = codes.index_select(1, columns_).mul_(inverse_).floor_().to(at::kLong);
  const at::Tensor bytes =
      fields.view({z.size(0), masks_.size(0), masks_.size(1)}).bitwise_and(masks_.to(at::kLong)).sum(2);
  return {scales, bytes.to(at::kByte)};
}

at::Tensor PackedCodes::unpack(const at::Tensor& bytes, at::ScalarType type) const {
  std::vector<std::int64_t> shape = bytes.sizes().vec();
  shape.push_back(masks_.size(1));
  at::Tensor fields = at::empty(shape, bytes.options().dtype(type));
  at::bitwise_and_out(fields, bytes.unsqueeze(-1), masks_);
  return fields.flatten(-2);
}

CodeScales PackedCodes::read_scales(const at::Tensor& scales) const {
  const at::Tensor numbers = scales.to(at::kFloat);
  const at::Tensor first = numbers.select(-1, 0);
  if (band_.coding == Coding::range) return {first, numbers.select(-1, 1)};
  const double lowest = (band_.coding == Coding::gguf ? 0 : 0.5) - std::exp2(band_.bits - 1);
  return {first * lowest, first};
}

at::Tensor PackedCodes::on_fields(const at::Tensor& maps) const {
  return maps.index_select(1, columns_).mul_(units_.to(maps.scalar_type()).unsqueeze(1));
}

}  // namespace headspan
