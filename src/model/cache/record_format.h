// How the stored columns of one token are laid out in bytes, and how those that get few bits are quantised. A
// record is a sequence of bands. A plain band holds its numbers in the cache's type. A coded band holds one
// scale a of 16 bits (range: two such numbers), then its codes k = 0 .. 2^b - 1, the lowest bit first,
// without gaps, padded to a whole byte. z is stored as
//
//   symmetric   (k - 2^(b-1) + 1/2) a,  a = max|z| / (2^(b-1) - 1/2)
//
//   range       smallest + k a,  a = (largest - smallest) / (2^b - 1), both of them times the band's `clip`
//
//   gguf        (k - 2^(b-1)) a,  a = -m / 2^(b-1) with m the number of largest magnitude, which may be
//               negative; with 8 bits a = |m| / 127. In blocks of 32 these are q4_0, q5_0 and q8_0 of
//               llama.cpp
//
//   gain        (k - 2^(b-1) + 1/2) a,  with one a for all bands of the record, which only the first one
//               holds; chosen by model/cache/gain_search.h. The columns are in units of steps of their own
//
//   normal      l_k a,  l the levels of model/kernels/normal_levels.h, the nearest to z / s with s^2 the mean
//               of z^2, and a such that the record has the same sum of squares as z
//
// A band whose `tokens` is above 1 holds the same for every column of that many consecutive records, its
// group (KIVI's keys): each record its own codes and an equal part of the scales, in the order of the
// columns.
//
// Scales are rounded to float16 before they are used, k to the nearest even and clipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/bands.h"
#include "model/cache/gain_search.h"
#include "model/core/dtype.h"
#include "model/kernels/quantized_gemm.h"

namespace headspan {

/// Neighbouring columns that are read in the same way.
struct ColumnRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  /// The run is one band of evenly spaced codes, or several that share a gain: a kernel may read it as it is.
  bool coded = false;
  int bands = 1;  ///< of a coded run

  static constexpr std::int64_t kMostJoined = 128;  ///< columns; a longer band is a run by itself
};

class RecordFormat {
 public:
  /// `plain`: the type of plain columns. Bands without columns are left out. weights: [columns], what a
  /// squared error in a column costs where the bands share a gain; else empty.
  RecordFormat(const std::vector<Band>& bands, Dtype plain, const std::vector<float>& weights = {});

  std::int64_t columns() const { return columns_; }
  std::int64_t bytes() const { return bytes_; }  ///< per record

  /// Writes z: [columns()] as one record, except for bands that are quantised in groups. T: float or double.
  template <class T>
  void pack(const T* z, std::byte* record) const;

  /// Returns how many records make a group; 1 if no band needs groups.
  std::int64_t group() const { return group_; }

  /// Writes those bands of a group of records that are quantised together. z: [group(), columns()]; `record`:
  /// the first.
  template <class T>
  void pack_group(const T* z, std::byte* record) const;

  /// Returns how many bytes after the last record `unpack` may read: none where no band is coded.
  std::int64_t slack() const;

  /// Returns the distance of the rows that `unpack` writes: whole vectors, with room after the last column.
  static std::int64_t leading(std::int64_t count) { return (count + 7 + 15) / 16 * 16; }

  /// Reads columns first .. first + count of `records` consecutive records: [records, count], rows `leading`
  /// >= count + 7 apart; what lies between rows may be overwritten. A coded band is read as a whole or not at
  /// all. `in_group`: how many records of its group lie before the first one.
  template <class T>
  void unpack(const std::byte* record, std::int64_t records, std::int64_t in_group, std::int64_t first,
              std::int64_t count, T* out, std::int64_t leading) const;

  /// Splits columns first .. first + count, which are whole bands where they are coded, into the fewest runs.
  std::vector<ColumnRun> column_runs(std::int64_t first, std::int64_t count) const;

  /// Returns the codes of a coded run in at most kQuantizedTokens consecutive records, and their scales. The
  /// codes stay in place.
  QuantizedBlock codes(const std::byte* record, std::int64_t records, const ColumnRun& run) const;

  /// Returns whether records consist of numbers of type T, so that they need no unpacking.
  template <class T>
  bool is_plain() const;

 private:
  struct PlacedBand {
    Band band;
    std::int64_t first;  // column
    std::int64_t
        offset;  // in bytes, within the record: of its codes behind their scales, or of plain numbers
    std::int64_t scales;  // offset of its scales, of another band if it follows

    std::int64_t end() const { return first + band.columns; }
    bool is_coded() const { return band.bits != kPlainBits; }
    /// Returns whether the band can be read together with a run that ends where it begins.
    bool joins(const ColumnRun& run) const;
    bool has_steps() const { return is_coded() && band.coding != Coding::normal && band.tokens == 1; }
  };

  bool has_codes() const;

  std::vector<PlacedBand> bands_;
  Dtype plain_;
  std::optional<GainSearch> gain_;  // where bands share a gain
  std::int64_t columns_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t group_ = 1;
};

}  // namespace headspan
