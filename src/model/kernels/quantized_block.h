// Coded columns of some tokens, as the products with them take them (model/kernels/quantized_gemm.h).
#pragma once

#include <cstdint>

#include "model/kernels/row_kernels.h"

namespace headspan {

constexpr std::int64_t kQuantizedTokens = 64;

constexpr int kMostQuantizedBits = 8;

/// Coded columns of some tokens.
struct QuantizedBlock {
  CodedRows codes;
  float base[kQuantizedTokens];  ///< of any finite value behind the last token, as step is
  float step[kQuantizedTokens];
};

}  // namespace headspan
