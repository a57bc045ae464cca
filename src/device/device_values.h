// The arithmetic on activations that are on a device, in ATen: the same code on a GPU and in host memory. It
// does what stats/gram/panel_values.h and stats/gram/panel_product.h do for a panel on the host, by the same
// definitions.
#pragma once

#include <optional>
#include <vector>

#include "device/integer_product.h"
#include "stats/gram/panel_values.h"

namespace headspan {

/// Makes LibTorch form products of FP32 in FP32, never in TF32, and sum those of bfloat16 and float16 in
/// FP32. Also keeps attention off cuDNN, which sets itself up again (some tenths of a second) for every new
/// length, and a growing cache has a new length with every token. Called once, before the first product.
/// Local.
void set_exact_products();

/// Waits until the device has done all that was put on its default stream. Local.
void wait_for(at::Device device);

/// Gives memory that LibTorch caches back to the device, for allocations of other sizes and for other
/// libraries. Local.
void release_unused(at::Device device);

/// Copies FP64 values to host memory.
std::vector<double> to_vector(const at::Tensor& values);

/// Returns the type in which the values of a panel are sent: the narrowest that holds what `precision`
/// multiplies.
at::ScalarType panel_type(Precision precision);
/// Returns its bytes.
std::int64_t panel_value_bytes(Precision precision);

/// Sets out = in - origin, rounded as `precision` multiplies it: to nearest, ties to even. in: [tokens, D];
/// origin: [D] FP64; out: [tokens, D] of panel_type. For `split` on GPUs, `out` is FP32, which as_operand
/// turns into integers.
void shift_values(const at::Tensor& in, const at::Tensor& origin, Precision precision, at::Tensor& out);

/// The columns of a panel in the form that add_product multiplies.
struct PanelOperand {
  at::Tensor values;                       ///< [tokens, D]; undefined if there are integers
  std::optional<IntegerColumns> integers;  ///< D columns

  PanelOperand narrow(std::int64_t first, std::int64_t count) const;
};

/// Converts values: [tokens, D] of panel_type; copies them only if products are formed in another type. For
/// `split`, products are formed in integers on GPUs, several times as fast as in FP64, and in FP64 elsewhere.
PanelOperand as_operand(const at::Tensor& values, Precision precision);

/// Adds sums += columns^T rows for the same tokens of m columns and n rows; sums: [m, n] FP64. `float32` and
/// `bfloat16` sum the products of all tokens in FP32 first.
void add_product(at::Tensor& sums, const PanelOperand& columns, const PanelOperand& rows,
                 Precision precision);

}  // namespace headspan
