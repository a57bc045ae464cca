#include "model/cache/record_format.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include <c10/util/Half.h>

#include "base/error.h"
#include "model/cache/plain_numbers.h"
#include "model/kernels/normal_levels.h"
#include "model/kernels/row_kernels.h"

namespace headspan {
namespace {

/// What a code means: base + code * step.
struct Scale {
  float base, step;
};

c10::Half to_half(double value) {
  constexpr double kLargest = 65504;
  return static_cast<c10::Half>(static_cast<float>(std::clamp(value, -kLargest, kLargest)));
}

/// Returns what code 0 means where the step is 1 and no number beside the step is stored.
double lowest_level(const Band& band) {
  const double half = std::exp2(band.bits - 1);
  return band.coding == Coding::gguf ? -half : 0.5 - half;
}

/// Returns the step from one code to the next for numbers from `smallest` to `largest`.
double step_of(const Band& band, double smallest, double largest) {
  const double levels = std::exp2(band.bits);
  if (band.coding == Coding::range) return (largest - smallest) / (levels - 1);
  const double magnitude = std::max(std::abs(smallest), std::abs(largest));
  if (band.coding == Coding::symmetric) return magnitude / (levels / 2 - 0.5);
  if (band.bits == 8) return magnitude / (levels / 2 - 1);
  return (largest > -smallest ? -magnitude : magnitude) / (levels / 2);
}

/// Writes the scale of z as the record stores it and returns it as it will be read.
template <class T>
Scale write_scale(const Band& band, const T* z, std::byte* out) {
  const auto [first, last] = std::minmax_element(z, z + band.columns);
  const double smallest = band.clip * static_cast<double>(*first),
               largest = band.clip * static_cast<double>(*last);
  const c10::Half step = to_half(step_of(band, smallest, largest)), base = to_half(smallest);
  if (band.coding == Coding::range) std::memcpy(out, &base, sizeof base);
  std::memcpy(out + scale_bytes(band) - 2, &step, sizeof step);
  if (band.coding == Coding::range) return {base, step};
  return {step * static_cast<float>(lowest_level(band)), step};
}

constexpr std::int64_t kRecords = 64;  // scales read at a time

/// Records begin .. end.
struct RecordRange {
  std::int64_t begin, end;
};

/// Reads the scales of at most kRecords records that are `stride` bytes apart. base, step: [kRecords]; zero
/// after the last record.
void read_scales(const Band& band, const std::byte* in, std::int64_t stride, std::int64_t records,
                 float* base, float* step) {
  std::uint32_t words[kRecords] = {};
  for (std::int64_t r = 0; r < records; ++r) std::memcpy(words + r, in + r * stride, sizeof words[0]);
  expand_halves(words, band.coding == Coding::range ? 16 : 0, kRecords, step);
  if (band.coding == Coding::range) return expand_halves(words, 0, kRecords, base);
  const auto lowest = static_cast<float>(lowest_level(band));
  for (std::int64_t r = 0; r < kRecords; ++r) base[r] = step[r] * lowest;
}

/// Returns the codes of records that are `stride` bytes apart.
CodedRows coded_rows(const Band& band, const std::byte* codes, std::int64_t stride, std::int64_t records) {
  return {reinterpret_cast<const std::uint8_t*>(codes), stride, records, band.bits, band.columns};
}

constexpr std::array<float, kRecords> repeated(float value) {
  std::array<float, kRecords> all{};
  for (float& one : all) one = value;
  return all;
}

/// Reads codes as numbers.
template <class T>
void read_numbers(const CodedRows& codes, T* out, std::int64_t leading) {
  static constexpr auto zeros = repeated(0), ones = repeated(1);
  expand_codes(codes, zeros.data(), ones.data(), out, leading);
}

/// Reads the levels that codes stand for, times a gain for each record.
template <class T>
void read_levels(const CodedRows& codes, const float* gain, T* out, std::int64_t leading) {
  float levels[kMostLevels] = {};
  const std::vector<float>& of_codes = normal_levels(codes.bits);
  std::copy(of_codes.begin(), of_codes.end(), levels);
  read_numbers(codes, out, leading);
  for (std::int64_t r = 0; r < codes.rows; ++r)
    look_up_levels(levels, gain[r], codes.count, out + r * leading);
}

template <class T>
void read_codes(const Band& band, const std::byte* scales, const std::byte* codes, std::int64_t stride,
                std::int64_t records, T* out, std::int64_t leading) {
  float base[kRecords], step[kRecords];
  for (std::int64_t r = 0; r < records; r += kRecords) {
    const std::int64_t count = std::min(kRecords, records - r);
    read_scales(band, scales + r * stride, stride, count, base, step);
    const CodedRows rows = coded_rows(band, codes + r * stride, stride, count);
    if (band.coding == Coding::normal) {
      read_levels(rows, step, out + r * leading, leading);
    } else {
      expand_codes(rows, base, step, out + r * leading, leading);
    }
  }
}

constexpr std::int64_t kGroup = 8;      // codes that fill whole bytes
constexpr std::int64_t kColumns = 256;  // coded at a time

/// Writes codes end to end, the lowest bit first.
void write_bits(const std::uint32_t* codes, std::int64_t count, int bits, std::byte* out) {
  for (std::int64_t i = 0; i < count; i += kGroup) {
    const std::int64_t group = std::min(kGroup, count - i);
    std::uint64_t word = 0;
    for (std::int64_t k = 0; k < group; ++k) word |= static_cast<std::uint64_t>(codes[i + k]) << k * bits;
    std::memcpy(out + i / kGroup * bits, &word, static_cast<std::size_t>((group * bits + 7) / 8));
  }
}

template <class T>
void write_codes(const Band& band, const Scale& scale, const T* z, std::byte* out) {
  const double inverse = scale.step != 0 ? 1.0 / static_cast<double>(scale.step) : 0;
  const double base = static_cast<double>(scale.base);
  const auto last = static_cast<std::uint32_t>((1 << band.bits) - 1);
  std::uint32_t codes[kColumns];
  for (std::int64_t begin = 0; begin < band.columns; begin += kColumns) {
    const std::int64_t count = std::min(kColumns, band.columns - begin);
    round_codes(z + begin, count, base, inverse, last, codes);
    write_bits(codes, count, band.bits, out + begin / kGroup * band.bits);
  }
}

/// Writes the codes of the levels nearest to z / rms(z), and the gain with which they have the length of z.
template <class T>
void write_levels(const Band& band, const T* z, std::byte* out) {
  const std::vector<float>& levels = normal_levels(band.bits);
  double squares = 0, coded = 0;
  for (std::int64_t i = 0; i < band.columns; ++i)
    squares += static_cast<double>(z[i]) * static_cast<double>(z[i]);
  const double inverse = squares > 0 ? std::sqrt(static_cast<double>(band.columns) / squares) : 0;
  std::vector<std::uint32_t> codes(static_cast<std::size_t>(band.columns));
  nearest_levels(z, band.columns, inverse, levels.data(), static_cast<std::int64_t>(levels.size()),
                 codes.data());
  for (const std::uint32_t code : codes)
    coded += static_cast<double>(levels[code]) * static_cast<double>(levels[code]);
  const c10::Half gain = to_half(std::sqrt(squares / coded));
  std::memcpy(out, &gain, sizeof gain);
  write_bits(codes.data(), band.columns, band.bits, out + scale_bytes(band));
}

/// Returns how many columns have their scales in one record of a group.
std::int64_t columns_in_record(const Band& band) { return (band.columns + band.tokens - 1) / band.tokens; }

/// Quantises the columns of a group of tokens, each by itself. z: [band.tokens, columns], rows `leading`
/// apart; out: records `stride` bytes apart.
template <class T>
void write_group(const Band& band, const T* z, std::int64_t leading, std::byte* out, std::int64_t stride) {
  const Band of_column{band.tokens, band.bits, band.coding};
  const auto last = static_cast<std::uint32_t>((1 << band.bits) - 1);
  const std::size_t tokens = static_cast<std::size_t>(band.tokens);
  std::vector<T> column(tokens);
  std::vector<std::uint32_t> codes(tokens), by_token(tokens * static_cast<std::size_t>(band.columns));
  const std::int64_t each = columns_in_record(band);
  for (std::int64_t c = 0; c < band.columns; ++c) {
    for (std::size_t t = 0; t < tokens; ++t) column[t] = z[static_cast<std::int64_t>(t) * leading + c];
    std::byte* const place = out + c / each * stride + c % each * 2 * scales_of(band);
    const Scale scale = write_scale(of_column, column.data(), place);
    const double inverse = scale.step != 0 ? 1.0 / static_cast<double>(scale.step) : 0;
    round_codes(column.data(), band.tokens, static_cast<double>(scale.base), inverse, last, codes.data());
    for (std::size_t t = 0; t < tokens; ++t)
      by_token[t * static_cast<std::size_t>(band.columns) + static_cast<std::size_t>(c)] = codes[t];
  }
  for (std::int64_t t = 0; t < band.tokens; ++t)
    write_bits(by_token.data() + t * band.columns, band.columns, band.bits,
               out + t * stride + scale_bytes(band));
}

/// Reads the scales of all columns of a group whose records are `stride` bytes apart. base, step: [columns].
void read_column_scales(const Band& band, const std::byte* group, std::int64_t stride, float* base,
                        float* step) {
  const std::int64_t each = columns_in_record(band);
  std::vector<std::uint32_t> words(static_cast<std::size_t>(band.columns));
  for (std::int64_t c = 0; c < band.columns; c += each, group += stride)
    std::memcpy(words.data() + c, group,
                static_cast<std::size_t>(std::min(each, band.columns - c)) * sizeof words[0]);
  expand_halves(words.data(), 0, band.columns, base);
  expand_halves(words.data(), 16, band.columns, step);
}

/// Reads records of groups; `records` counts from the first record of the group that `in` lies in.
template <class T>
void read_groups(const Band& band, const std::byte* in, std::int64_t stride, const RecordRange& records,
                 T* out, std::int64_t leading) {
  const std::byte* const all = in - records.begin * stride;
  std::vector<float> base(static_cast<std::size_t>(band.columns)), step(base.size());
  for (std::int64_t r = records.begin; r < records.end;) {
    const std::int64_t begin = r / band.tokens * band.tokens;
    const std::int64_t count = std::min({begin + band.tokens - r, records.end - r, kRecords});
    read_column_scales(band, all + begin * stride, stride, base.data(), step.data());
    read_numbers(coded_rows(band, all + r * stride + scale_bytes(band), stride, count), out, leading);
    for (std::int64_t k = 0; k < count; ++k, ++r, out += leading)
      scale_codes(base.data(), step.data(), band.columns, out);
  }
}

}  // namespace

RecordFormat::RecordFormat(const std::vector<Band>& bands, Dtype plain, const std::vector<float>& weights)
    : plain_(plain) {
  if (!weights.empty()) gain_.emplace(bands, weights);
  for (const Band& band : bands) {
    if (band.columns == 0) continue;
    HS_ASSERT(band.tokens == 1 || band.coding == Coding::range);
    HS_ASSERT(band.follows == (band.coding == Coding::gain && !bands_.empty()));
    group_ = std::max(group_, band.tokens);
    const bool coded = band.bits != kPlainBits;
    bands_.push_back({band, columns_, bytes_ + (coded ? scale_bytes(band) : 0),
                      band.follows ? bands_.front().scales : bytes_});
    columns_ += band.columns;
    bytes_ += coded ? band_bytes(band) : band.columns * plain_bytes(plain);
  }
  HS_ASSERT(columns_ == 0 || gain_.has_value() == has_gain(bands));
}

template <class T>
void RecordFormat::pack(const T* z, std::byte* record) const {
  const c10::Half gain = gain_ ? gain_->choose(z) : c10::Half(0);
  if (gain_) std::memcpy(record + bands_.front().scales, &gain, sizeof gain);
  for (const PlacedBand& placed : bands_) {
    const Band& band = placed.band;
    const T* const columns = z + placed.first;
    std::byte *out = record + placed.offset, *scales = record + placed.scales;
    if (band.tokens > 1) continue;
    if (!placed.is_coded()) {
      write_plain(plain_, columns, band.columns, out);
    } else if (band.coding == Coding::normal) {
      write_levels(band, columns, scales);
    } else {
      const auto step = static_cast<float>(gain);
      const Scale scale = gain_ ? Scale{step * static_cast<float>(lowest_level(band)), step}
                                : write_scale(band, columns, scales);
      write_codes(band, scale, columns, out);
    }
  }
}

template <class T>
void RecordFormat::pack_group(const T* z, std::byte* record) const {
  for (const PlacedBand& placed : bands_)
    if (placed.band.tokens > 1)
      write_group(placed.band, z + placed.first, columns_, record + placed.scales, bytes_);
}

template <class T>
void RecordFormat::unpack(const std::byte* record, std::int64_t records, std::int64_t in_group,
                          std::int64_t first, std::int64_t count, T* out, std::int64_t leading) const {
  for (const PlacedBand& placed : bands_) {
    const std::int64_t begin = std::max(first, placed.first), end = std::min(first + count, placed.end());
    if (begin >= end) continue;
    const std::byte *in = record + placed.offset, *const scales = record + placed.scales;
    if (placed.is_coded()) {
      HS_ASSERT(end - begin == placed.band.columns);
      if (placed.band.tokens > 1)
        read_groups(placed.band, scales, bytes_, {in_group, in_group + records}, out + begin - first,
                    leading);
      else
        read_codes(placed.band, scales, in, bytes_, records, out + begin - first, leading);
    } else {
      in += (begin - placed.first) * plain_bytes(plain_);
      for (std::int64_t r = 0; r < records; ++r)
        read_plain(plain_, in + r * bytes_, end - begin, out + r * leading + begin - first);
    }
  }
}

std::vector<ColumnRun> RecordFormat::column_runs(std::int64_t first, std::int64_t count) const {
  std::vector<ColumnRun> runs;
  for (const PlacedBand& placed : bands_) {
    const std::int64_t begin = std::max(first, placed.first), end = std::min(first + count, placed.end());
    if (begin >= end) continue;
    const bool coded = placed.has_steps();
    if (!runs.empty() && (coded ? placed.joins(runs.back()) : !runs.back().coded)) {
      runs.back().count += end - begin;
      ++runs.back().bands;
    } else {
      runs.push_back({begin, end - begin, coded});
    }
  }
  return runs;
}

bool RecordFormat::PlacedBand::joins(const ColumnRun& run) const {
  return band.follows && run.count % kGroup == 0 && run.count + band.columns <= ColumnRun::kMostJoined &&
         run.bands < QuantizedBlock::kMostSections;
}

QuantizedBlock RecordFormat::codes(const std::byte* record, std::int64_t records,
                                   const ColumnRun& run) const {
  static_assert(kRecords == kQuantizedTokens);
  const auto placed = std::find_if(bands_.begin(), bands_.end(),
                                   [&](const PlacedBand& other) { return other.first == run.first; });
  HS_ASSERT(placed != bands_.end() && run.coded);
  QuantizedBlock block;
  for (auto band = placed; band != placed + run.bands; ++band)
    block.sections[block.count++] = coded_rows(band->band, record + band->offset, bytes_, records);
  HS_ASSERT(block.columns() == run.count);
  read_scales(placed->band, record + placed->scales, bytes_, records, block.middle, block.step);
  const auto middle = static_cast<float>(1 << (placed->band.bits - 1));
  for (std::int64_t t = 0; t < kQuantizedTokens; ++t) block.middle[t] += middle * block.step[t];
  return block;
}

bool RecordFormat::has_codes() const {
  return std::any_of(bands_.begin(), bands_.end(),
                     [](const PlacedBand& placed) { return placed.is_coded(); });
}

std::int64_t RecordFormat::slack() const { return has_codes() ? sizeof(std::uint64_t) : 0; }

template <class T>
bool RecordFormat::is_plain() const {
  return plain_ == (std::is_same_v<T, double> ? Dtype::float64 : Dtype::float32) && !has_codes();
}

template void RecordFormat::pack<float>(const float*, std::byte*) const;
template void RecordFormat::pack_group<float>(const float*, std::byte*) const;
template void RecordFormat::unpack<float>(const std::byte*, std::int64_t, std::int64_t, std::int64_t,
                                          std::int64_t, float*, std::int64_t) const;
template bool RecordFormat::is_plain<float>() const;
template void RecordFormat::pack<double>(const double*, std::byte*) const;
template void RecordFormat::pack_group<double>(const double*, std::byte*) const;
template void RecordFormat::unpack<double>(const std::byte*, std::int64_t, std::int64_t, std::int64_t,
                                           std::int64_t, double*, std::int64_t) const;
template bool RecordFormat::is_plain<double>() const;

}  // namespace headspan
