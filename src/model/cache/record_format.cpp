#include "model/cache/record_format.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "base/error.h"
#include "model/kernels/row_kernels.h"

namespace headspan {
namespace {

std::int64_t plain_bytes(Dtype dtype) {
  if (dtype == Dtype::float64) return 8;
  return dtype == Dtype::float32 ? 4 : 2;
}

/// Half-precision types take a float.
template <class Stored, class T>
Stored rounded(T value) {
  if constexpr (sizeof(Stored) == 2)
    return static_cast<Stored>(static_cast<float>(value));
  else
    return static_cast<Stored>(value);
}

template <class Stored, class T>
void write_numbers(const T* z, std::int64_t count, std::byte* out) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = rounded<Stored>(z[i]);
    std::memcpy(out + i * static_cast<std::int64_t>(sizeof value), &value, sizeof value);
  }
}

template <class Stored, class T>
void read_numbers(const std::byte* in, std::int64_t count, T* z) {
  if constexpr (std::is_same_v<Stored, T>) {
    std::memcpy(z, in, static_cast<std::size_t>(count) * sizeof(T));
  } else {
    for (std::int64_t i = 0; i < count; ++i) {
      Stored value;
      std::memcpy(&value, in + i * static_cast<std::int64_t>(sizeof value), sizeof value);
      z[i] = static_cast<T>(static_cast<std::conditional_t<sizeof(Stored) == 2, float, T>>(value));
    }
  }
}

template <class T>
void write_plain(Dtype dtype, const T* z, std::int64_t count, std::byte* out) {
  switch (dtype) {
    case Dtype::float64:
      return write_numbers<double>(z, count, out);
    case Dtype::float32:
      return write_numbers<float>(z, count, out);
    case Dtype::bfloat16:
      return write_numbers<c10::BFloat16>(z, count, out);
    case Dtype::float16:
      return write_numbers<c10::Half>(z, count, out);
  }
}

template <class T>
void read_plain(Dtype dtype, const std::byte* in, std::int64_t count, T* z) {
  switch (dtype) {
    case Dtype::float64:
      return read_numbers<double>(in, count, z);
    case Dtype::float32:
      return read_numbers<float>(in, count, z);
    case Dtype::bfloat16:
      return read_numbers<c10::BFloat16>(in, count, z);
    case Dtype::float16:
      return read_numbers<c10::Half>(in, count, z);
  }
}

/// A value is base + code * step.
struct Scale {
  float base, step;
};

c10::Half to_half(double value) {
  constexpr double kLargest = 65504;
  return static_cast<c10::Half>(static_cast<float>(std::clamp(value, -kLargest, kLargest)));
}

std::int64_t scale_bytes(const Band& band) { return band.offset ? 4 : 2; }

/// Rounds to what the record keeps, writes it, and returns what reading will give.
template <class T>
Scale write_scale(const Band& band, const T* z, std::byte* out) {
  c10::Half kept[2];
  const auto [least, largest] = std::minmax_element(z, z + band.columns);
  const double levels = std::exp2(band.bits);
  if (band.offset) {
    kept[0] = to_half(static_cast<double>(*least));
    kept[1] = to_half(static_cast<double>(*largest - *least) / (levels - 1));
  } else {
    const double magnitude = std::max<double>(std::abs(*least), std::abs(*largest));
    kept[0] = to_half(magnitude / (levels / 2 - 0.5));
  }
  std::memcpy(out, kept, static_cast<std::size_t>(scale_bytes(band)));
  const float first = kept[0];
  if (band.offset) return {first, kept[1]};
  return {first * static_cast<float>(0.5 - levels / 2), first};
}

constexpr std::int64_t kRecords = 64;  // whose scales are read at a time

/// The scales of at most kRecords records `stride` bytes apart; zero behind the last. base, step: [kRecords].
void read_scales(const Band& band, const std::byte* in, std::int64_t stride, std::int64_t records,
                 float* base, float* step) {
  std::uint32_t words[kRecords] = {};
  for (std::int64_t r = 0; r < records; ++r) std::memcpy(words + r, in + r * stride, sizeof words[0]);
  expand_halves(words, band.offset ? 16 : 0, kRecords, step);
  if (band.offset) return expand_halves(words, 0, kRecords, base);
  const auto least = static_cast<float>(0.5 - std::exp2(band.bits - 1));
  for (std::int64_t r = 0; r < kRecords; ++r) base[r] = step[r] * least;
}

/// Of at most kRecords records, behind whose scales they lie.
CodedRows coded_rows(const Band& band, const std::byte* in, std::int64_t stride, std::int64_t records) {
  return {reinterpret_cast<const std::uint8_t*>(in) + scale_bytes(band), stride, records, band.bits,
          band.columns};
}

template <class T>
void read_codes(const Band& band, const std::byte* in, std::int64_t stride, std::int64_t records, T* out,
                std::int64_t leading) {
  float base[kRecords], step[kRecords];
  for (std::int64_t r = 0; r < records; r += kRecords) {
    const std::int64_t count = std::min(kRecords, records - r);
    const std::byte* first = in + r * stride;
    read_scales(band, first, stride, count, base, step);
    expand_codes(coded_rows(band, first, stride, count), base, step, out + r * leading, leading);
  }
}

constexpr std::int64_t kGroup = 8;      // codes that fill whole bytes
constexpr std::int64_t kColumns = 256;  // that become codes at a time

template <class T>
void write_codes(const Band& band, const Scale& scale, const T* z, std::byte* out) {
  const double inverse = scale.step > 0 ? 1.0 / static_cast<double>(scale.step) : 0;
  const double base = static_cast<double>(scale.base);
  const auto last = static_cast<std::uint32_t>((1 << band.bits) - 1);
  std::uint32_t codes[kColumns];
  for (std::int64_t begin = 0; begin < band.columns; begin += kColumns) {
    const std::int64_t count = std::min(kColumns, band.columns - begin);
    round_codes(z + begin, count, base, inverse, last, codes);
    for (std::int64_t i = 0; i < count; i += kGroup) {
      std::uint64_t word = 0;
      for (std::int64_t k = 0; k < std::min(kGroup, count - i); ++k)
        word |= static_cast<std::uint64_t>(codes[i + k]) << k * band.bits;
      const std::int64_t bits = std::min(kGroup, count - i) * band.bits;
      std::memcpy(out + (begin + i) / kGroup * band.bits, &word, static_cast<std::size_t>((bits + 7) / 8));
    }
  }
}

}  // namespace

RecordFormat::RecordFormat(const std::vector<Band>& bands, Dtype plain) : plain_(plain) {
  for (const Band& band : bands) {
    if (band.columns == 0) continue;
    parts_.push_back({band, columns_, bytes_});
    columns_ += band.columns;
    bytes_ += band.bits == kPlainBits ? band.columns * plain_bytes(plain) : band_bytes(band);
  }
}

template <class T>
void RecordFormat::pack(const T* z, std::byte* record) const {
  for (const Part& part : parts_) {
    std::byte* out = record + part.byte;
    if (part.band.bits == kPlainBits) {
      write_plain(plain_, z + part.first, part.band.columns, out);
      continue;
    }
    const Scale scale = write_scale(part.band, z + part.first, out);
    write_codes(part.band, scale, z + part.first, out + scale_bytes(part.band));
  }
}

template <class T>
void RecordFormat::unpack(const std::byte* record, std::int64_t records, std::int64_t first,
                          std::int64_t count, T* out, std::int64_t leading) const {
  for (const Part& part : parts_) {
    const std::int64_t begin = std::max(first, part.first),
                       end = std::min(first + count, part.first + part.band.columns);
    if (begin >= end) continue;
    const std::byte* in = record + part.byte;
    if (part.band.bits == kPlainBits) {
      in += (begin - part.first) * plain_bytes(plain_);
      for (std::int64_t r = 0; r < records; ++r)
        read_plain(plain_, in + r * bytes_, end - begin, out + r * leading + begin - first);
    } else {
      HS_ASSERT(end - begin == part.band.columns);
      read_codes(part.band, in, bytes_, records, out + begin - first, leading);
    }
  }
}

std::vector<ColumnRun> RecordFormat::pieces(std::int64_t first, std::int64_t count) const {
  std::vector<ColumnRun> pieces;
  for (const Part& part : parts_) {
    const std::int64_t begin = std::max(first, part.first),
                       end = std::min(first + count, part.first + part.band.columns);
    if (begin >= end) continue;
    const bool coded = part.band.bits != kPlainBits;
    if (!coded && !pieces.empty() && !pieces.back().coded)
      pieces.back().count += end - begin;
    else
      pieces.push_back({begin, end - begin, coded});
  }
  return pieces;
}

QuantizedBlock RecordFormat::codes(const std::byte* record, std::int64_t records,
                                   const ColumnRun& piece) const {
  static_assert(kRecords == kQuantizedTokens);
  const auto part =
      std::find_if(parts_.begin(), parts_.end(), [&](const Part& one) { return one.first == piece.first; });
  HS_ASSERT(part != parts_.end() && piece.coded && piece.count == part->band.columns);
  const std::byte* in = record + part->byte;
  QuantizedBlock block;
  block.codes = coded_rows(part->band, in, bytes_, records);
  read_scales(part->band, in, bytes_, records, block.base, block.step);
  return block;
}

bool RecordFormat::has_codes() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const Part& part) { return part.band.bits != kPlainBits; });
}

std::int64_t RecordFormat::slack() const { return has_codes() ? sizeof(std::uint64_t) : 0; }

template <class T>
bool RecordFormat::is_plain() const {
  return plain_ == (std::is_same_v<T, double> ? Dtype::float64 : Dtype::float32) && !has_codes();
}

#define HS_INSTANTIATE(T)                                                                               \
  template void RecordFormat::pack<T>(const T*, std::byte*) const;                                      \
  template void RecordFormat::unpack<T>(const std::byte*, std::int64_t, std::int64_t, std::int64_t, T*, \
                                        std::int64_t) const;                                            \
  template bool RecordFormat::is_plain<T>() const
HS_INSTANTIATE(float);
HS_INSTANTIATE(double);
#undef HS_INSTANTIATE

}  // namespace headspan
