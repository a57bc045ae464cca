// The arithmetic on activations that lie on a device, in ATen: the same code on a GPU and in host memory.
// What stats/gram/panel_values.h and stats/gram/panel_product.h are for a panel on the host, and by the same
// definitions.
#pragma once

#include <optional>

#include "device/integer_product.h"
#include "stats/gram/panel_values.h"

namespace headspan {

/// Sees to it that products in FP32 are formed in FP32, TF32 never, and those of bfloat16 and float16 summed
/// in FP32; and that attention does without cuDNN, which prepares itself anew (some tenths of a second) for
/// each length that it has not met, as a growing cache brings with every token. Once, before the first
/// product. Local.
void set_exact_products();

/// Returns when the device has done all that was put on its default stream. Local.
void wait_for(at::Device device);

/// Gives memory that LibTorch keeps for later back to the device, for other sizes and other libraries. Local.
void release_unused(at::Device device);

/// In what type the values of a panel travel: the narrowest that holds what `precision` multiplies.
at::ScalarType panel_type(Precision precision);

/// out = in - origin as `precision` multiplies it, rounded to nearest, ties to even. in: [tokens, D]; origin:
/// [D] FP64; out: [tokens, D] of panel_type. For `split` on GPUs that is FP32, of which as_operand makes
/// integers.
void shift_values(const at::Tensor& in, const at::Tensor& origin, Precision precision, at::Tensor& out);

/// The columns of a panel as add_product takes them.
struct PanelOperand {
  at::Tensor values;                       ///< [tokens, D]; undefined where there are integers
  std::optional<IntegerColumns> integers;  ///< of D columns

  PanelOperand narrow(std::int64_t first, std::int64_t count) const;
};

/// From values: [tokens, D] of panel_type: a copy where products are formed in another type. Those of `split`
/// are formed in integers on GPUs, where they are several times as fast as in FP64, else in FP64.
PanelOperand as_operand(const at::Tensor& values, Precision precision);

/// sums += columns^T rows for the same tokens of m columns and n rows, sums: [m, n] FP64. In `float32` and
/// `bfloat16` the products are summed over the tokens in FP32 first.
void add_product(at::Tensor& sums, const PanelOperand& columns, const PanelOperand& rows,
                 Precision precision);

}  // namespace headspan
