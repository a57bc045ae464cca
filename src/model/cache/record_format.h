// How one token's stored columns lie in bytes, and the quantiser of those that get few bits. A record is the
// bands in turn: a plain band holds its numbers in the cache's type; a coded band one scale of 16 bits (two
// numbers with an offset), then its codes, the lowest bit first, without gaps, up to a whole byte.
//
//   symmetric   a = max|z| / (2^(b-1) - 1/2);  z is kept as (k + 1/2) a, k = round(z / a - 1/2)
//
//   offset      z is kept as least + k * step, step = (largest - least) / (2^b - 1), k = 0 .. 2^b - 1
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

/// Neighbouring columns that are read in one way.
struct ColumnRun {
  std::int64_t first = 0;
  std::int64_t count = 0;
  bool coded = false;  ///< one band of codes, which need not be unpacked
};

class RecordFormat {
 public:
  /// `plain`: the type of plain columns. Bands of no columns are left out.
  RecordFormat(const std::vector<Band>& bands, Dtype plain);

  std::int64_t columns() const { return columns_; }
  std::int64_t bytes() const { return bytes_; }  ///< of one record

  /// Writes z: [columns()] as one record. T: float or double.
  template <class T>
  void pack(const T* z, std::byte* record) const;

  /// How many bytes behind the last record `unpack` may look at: none where no band is coded.
  std::int64_t slack() const;

  /// How far apart `unpack` wants the rows that it writes: whole vectors, and room behind the last column.
  static std::int64_t leading(std::int64_t count) { return (count + 7 + 15) / 16 * 16; }

  /// Reads columns first .. first + count of `records` records that lie end to end: [records, count], rows
  /// `leading` >= count + 7 apart, up to the next of which anything may be written. A coded band is read as a
  /// whole or not at all.
  template <class T>
  void unpack(const std::byte* record, std::int64_t records, std::int64_t first, std::int64_t count, T* out,
              std::int64_t leading) const;

  /// Columns first .. first + count, which are whole bands where they are coded, in as few pieces as can be.
  std::vector<ColumnRun> pieces(std::int64_t first, std::int64_t count) const;

  /// The codes of such a band in at most kQuantizedTokens records that lie end to end, where they lie.
  QuantizedBlock codes(const std::byte* record, std::int64_t records, const ColumnRun& piece) const;

  /// Whether records are nothing but numbers of type T, so that they need no unpacking.
  template <class T>
  bool is_plain() const;

 private:
  struct Part {
    Band band;
    std::int64_t first;  // column
    std::int64_t byte;   // in the record
  };

  bool has_codes() const;

  std::vector<Part> parts_;
  Dtype plain_;
  std::int64_t columns_ = 0;
  std::int64_t bytes_ = 0;
};

}  // namespace headspan
