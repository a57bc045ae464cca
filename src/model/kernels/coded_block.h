// Coded columns of some tokens, as the products with them take them (model/kernels/coded_rows.h).
#pragma once

#include <cstdint>

#include "model/kernels/row_kernels.h"

namespace headspan {

constexpr std::int64_t kCodedTokens = 64;

constexpr int kMostCodedBits = 8;

/// Coded columns of some tokens.
struct CodedBlock {
  CodedRows codes;
  float base[kCodedTokens];  ///< of any finite value behind the last token, as step is
  float step[kCodedTokens];
};

}  // namespace headspan
