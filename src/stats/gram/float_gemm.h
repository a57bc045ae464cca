// Products of the columns of an FP32 panel, summed in FP32: by BLAS, or by oneDNN where that is faster
// (dist/onednn.h). Values that are bfloat16 are multiplied as such where the processor can: 535 GF/s against
// 268 in FP32 on an EPYC. Local.
#pragma once

#include <cstdint>

#include "dist/matrix/large_array.h"
#include "dist/matrix/panel_exchange.h"
#include "stats/gram/panel_values.h"

namespace headspan {

class FloatGemm {
 public:
  enum class Kind { blas, onednn_float, onednn_bfloat16 };

  /// Returns the fastest kind for values rounded as `precision` says, on this processor.
  static Kind best(Precision precision);
  /// Returns whether this program and this processor can do `kind`.
  static bool is_possible(Kind kind);

  explicit FloatGemm(Kind kind) : kind_(kind) {}
  Kind kind() const { return kind_; }

  /// Sets the panel, with contiguous columns, that the next products are formed from. For onednn_bfloat16 its
  /// values must be bfloat16 and are copied; otherwise its operands must outlive the products.
  void open(const PanelOperands<float>& panel);

  /// Sets block[i + j m] = sum_t rows[row + i, t] columns[column + j, t]: [m, n], column-major.
  void multiply(std::int64_t row, std::int64_t m, std::int64_t column, std::int64_t n, float* block) const;

 private:
  Kind kind_;
  PanelOperands<float> panel_;
  LargeArray<std::uint16_t> rows_, columns_;  // the panel in bfloat16, in the same layout
};

}  // namespace headspan
