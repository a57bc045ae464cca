// Codes of few bits on a device, in ATen: a coded band of model/cache/record_format.h, its scales and bytes
// the same, made and read without a loop over codes. What is read are fields: the bits of one code in one
// byte, as a number from 0 to 255 where they stand, so that one operation unpacks a byte.
//
//   code[c] = sum of unit[f] field[f] over the fields f of column c        unit: powers of two
//
// A code that crosses into the next byte has two fields. Maps of columns are turned into maps of fields once,
// and nothing is ever put together. Not where bytes are kept: that is model/device_cache/device_block.h.
#pragma once

#include <ATen/core/Tensor.h>

#include "base/bands.h"

namespace headspan {

/// Of rows of one band.
struct PackedRows {
  at::Tensor scales;  ///< [rows, 1], or with an offset [rows, 2]: float16
  at::Tensor bytes;   ///< [rows, bytes]: uint8
};

/// z = base + step * code; float32, of the shape of the scales without the last dimension.
struct CodeScales {
  at::Tensor base, step;
};

class PackedCodes {
 public:
  /// A band of few bits and at least one column.
  PackedCodes(const Band& band, at::Device device);

  std::int64_t bytes() const { return masks_.size(0); }   ///< of the codes of a token
  std::int64_t fields() const { return masks_.numel(); }  ///< bits that stand for no code are a field of 0
  std::int64_t scales() const { return band_.offset ? 2 : 1; }

  /// z: [rows, columns], float32 or float64.
  PackedRows pack(const at::Tensor& z) const;

  /// bytes: [..., bytes]; returns [..., fields] of `type`.
  at::Tensor unpack(const at::Tensor& bytes, at::ScalarType type) const;

  /// scales: [..., scales].
  CodeScales read_scales(const at::Tensor& scales) const;

  /// maps: [heads, columns, d]; returns [heads, fields, d].
  at::Tensor on_fields(const at::Tensor& maps) const;

  /// [fields], float64: 1 / unit of the lowest field of each column, else 0. A number that is the same in
  /// every column is that number times this in fields; and a row that on_fields has folded, times this, is
  /// the sum of its columns.
  const at::Tensor& lowest() const { return lowest_; }

 private:
  Band band_;
  at::Tensor masks_;    // [bytes, fields of a byte], uint8
  at::Tensor columns_;  // [fields], int64
  at::Tensor units_;    // [fields], float64; 0 where no code is
  at::Tensor inverse_;  // 1 / units_, or 0
  at::Tensor lowest_;
};

}  // namespace headspan
