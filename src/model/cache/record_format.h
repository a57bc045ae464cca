// How the stored columns of one token are laid out in bytes, and how those that get few bits are quantised. A
// record is a sequence of bands. A plain band holds its numbers in the cache's type. A coded band holds one
// scale of 16 bits (with an offset: two such numbers), then its codes, the lowest bit first, without gaps,
// padded to a whole byte.
//
//   symmetric   a = max|z| / (2^(b-1) - 1/2);  z is stored as (k + 1/2) a, k = round(z / a - 1/2)
//
//   offset      z is stored as smallest + k * step, step = (largest - smallest) / (2^b - 1), k = 0 .. 2^b - 1
//
// Scales are rounded to float16 before they are used, k to the nearest even and clipped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/bands.h"
#include "model/core/dtype.h"
#include "model/kernels/quantized_gemm.h"

namespace headspan {

/// Neighbouring columns that are read in the same way.
struct ColumnRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool coded = false;  ///< the run is one band of codes, which a kernel may read as they are
};

class RecordFormat {
 public:
  /// `plain`: the type of plain columns. Bands without columns are left out.
  RecordFormat(const std::vector<Band>& bands, Dtype plain);

  std::int64_t columns() const { return columns_; }
  std::int64_t bytes() const { return bytes_; }  ///< per record

  /// Writes z: [columns()] as one record. T: float or double.
  template <class T>
  void pack(const T* z, std::byte* record) const;

  /// Returns how many bytes after the last record `unpack` may read: none where no band is coded.
  std::int64_t slack() const;

  /// Returns the distance of the rows that `unpack` writes: whole vectors, with room after the last column.
  static std::int64_t leading(std::int64_t count) { return (count + 7 + 15) / 16 * 16; }

  /// Reads columns first .. first + count of `records` consecutive records: [records, count], rows `leading`
  /// >= count + 7 apart; what lies between rows may be overwritten. A coded band is read as a whole or not at
  /// all.
  template <class T>
  void unpack(const std::byte* record, std::int64_t records, std::int64_t first, std::int64_t count, T* out,
              std::int64_t leading) const;

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
    std::int64_t first;   // column
    std::int64_t offset;  // in bytes, within the record

    std::int64_t end() const { return first + band.columns; }
    bool is_coded() const { return band.bits != kPlainBits; }
  };

  bool has_codes() const;

  std::vector<PlacedBand> bands_;
  Dtype plain_;
  std::int64_t columns_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace headspan
