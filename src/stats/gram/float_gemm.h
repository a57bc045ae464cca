// Products of the columns of an FP32 panel, summed in FP32: by BLAS, or by oneDNN where this processor gains
// by it (dist/onednn.h); values that are bfloat16 anyway, multiplied as such, 535 GF/s where FP32 has 268.
// Local.
#pragma once

#include <cstdint>

#include "dist/matrix/large_array.h"
#include "dist/matrix/panel_exchange.h"
#include "stats/gram/panel_values.h"

namespace headspan {

class FloatGemm {
 public:
  enum class Kind { blas, onednn_float, onednn_bfloat16 };

  /// The fastest for values rounded as `precision` says, on this processor.
  static Kind best(Precision precision);
  /// Whether this processor can do it.
  static bool is_possible(Kind kind);

  explicit FloatGemm(Kind kind) : kind_(kind) {}
  Kind kind() const { return kind_; }

  /// What the products to come are of, with that many columns; for onednn_bfloat16 values with no bits beyond
  /// bfloat16's, which are copied. The operands must outlive them otherwise.
  void open(const PanelOperands<float>& panel, std::int64_t columns);

  /// block[i + j m] = sum_t rows[row + i, t] columns[column + j, t]: [m, n], column-major.
  void multiply(std::int64_t row, std::int64_t m, std::int64_t column, std::int64_t n, float* block) const;

 private:
  Kind kind_;
  PanelOperands<float> panel_;
  LargeArray<float> neighbours_;              // the panel's columns where they are not neighbours in it
  LargeArray<std::uint16_t> rows_, columns_;  // in bfloat16, laid out as the panel's
};

}  // namespace headspan
