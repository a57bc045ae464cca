// Codes of few bits on a device, in ATen: packs and unpacks a coded band of model/cache/record_format.h, with
// the same scales and bytes, without a loop over codes. Unpacking gives fields. A field is those bits of one
// code that lie in one byte, left in their place, as a number from 0 to 255; one operation gives all fields
// of a byte.
//
//   code[c] = sum of unit[f] field[f] over the fields f of column c        unit: powers of two
//
// A code that crosses into the next byte has two fields. Maps of columns are turned into maps of fields once,
// so that codes are never assembled. The bytes are kept by model/device_cache/device_block.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/bands.h"

namespace headspan {

/// Rows of one band, packed.
struct PackedRows {
  at::Tensor scales;  ///< [rows, scales]: float16
  at::Tensor bytes;   ///< [rows, bytes]: uint8
};

/// z = base + step * code; float32, of the shape of the scales without the last dimension.
struct CodeScales {
  at::Tensor base, step;
};

class PackedCodes {
 public:
  /// `band` has few bits, at least one column, and evenly spaced levels.
  PackedCodes(const Band& band, at::Device device);

  std::int64_t bytes() const { return masks_.size(0); }   ///< per token
  std::int64_t fields() const { return masks_.numel(); }  ///< per token; unused bits are fields of 0
  std::int64_t scales() const { return scales_of(band_); }

  /// Quantises and packs z: [rows, columns], float32 or float64. gain: [rows, 1] in float16, of a band that
  /// has a gain; else undefined.
  PackedRows pack(const at::Tensor& z, const at::Tensor& gain = {}) const;

  const Band& band() const { return band_; }

  /// Returns the fields of bytes: [..., bytes], as [..., fields] of `type`.
  at::Tensor unpack(const at::Tensor& bytes, at::ScalarType type) const;

  /// Returns what stored scales: [..., scales] mean.
  CodeScales read_scales(const at::Tensor& scales) const;

  /// Turns maps of columns: [heads, columns, d] into maps of fields: [heads, fields, d].
  at::Tensor on_fields(const at::Tensor& maps) const;

  /// Returns 1 / unit for the lowest field of each column and 0 for the others: [fields], float64. Multiplied
  /// by a number it gives the fields of columns that all have this number. Its product with a map of fields
  /// is the sum of the map over the columns.
  const at::Tensor& lowest() const { return lowest_; }

 private:
  at::Tensor make_scales(const at::Tensor& smallest, const at::Tensor& largest) const;

  Band band_;
  at::Tensor masks_;    // [bytes, fields of a byte], uint8
  at::Tensor columns_;  // [fields], int64
  at::Tensor units_;    // [fields], float64; 0 where no code is
  at::Tensor inverse_;  // 1 / units_, or 0
  at::Tensor lowest_;
};

}  // namespace headspan
