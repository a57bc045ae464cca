#include "dist/kernels/head_product.h"

#include <cstring>

namespace headspan {
namespace {

/// Rows of one head, `row` numbers from one to the next, its block [d, d], and where the product goes.
struct Head {
  const float* x;
  const float* block;
  float* y;
  std::int64_t row, d;
};

/// Sets Vectors * Lanes outputs from `first` on of Tokens tokens.
template <int Lanes, int Tokens, int Vectors>
HS_INLINED inline void multiply_tile(const Head& head, std::int64_t token, std::int64_t first) {
  typedef float Values __attribute__((vector_size(4 * Lanes)));
  const float* const x = head.x + token * head.row;
  const float* block = head.block + first;
  Values sums[Tokens][Vectors] = {};
  for (std::int64_t i = 0; i < head.d; ++i, block += head.d) {
    Values row[Vectors];
    std::memcpy(&row, block, sizeof row);
#pragma GCC unroll 6
    for (int t = 0; t < Tokens; ++t) {
      const Values factor = x[t * head.row + i] - Values{};
#pragma GCC unroll 4
      for (int v = 0; v < Vectors; ++v) sums[t][v] += row[v] * factor;
    }
  }
#pragma GCC unroll 6
  for (int t = 0; t < Tokens; ++t)
#pragma GCC unroll 4
    for (int v = 0; v < Vectors; ++v)
      std::memcpy(head.y + (token + t) * head.row + first + v * Lanes, &sums[t][v], sizeof sums[t][v]);
}

/// Sets outputs of some tokens.
template <int Lanes, int Tokens>
HS_INLINED inline void multiply_tokens(const Head& head, std::int64_t token) {
  constexpr int kVectors = Lanes == 16 ? 4 : 2;
  std::int64_t first = 0;
  for (; first + kVectors * Lanes <= head.d; first += kVectors * Lanes)
    multiply_tile<Lanes, Tokens, kVectors>(head, token, first);
  for (; first + Lanes <= head.d; first += Lanes) multiply_tile<Lanes, Tokens, 1>(head, token, first);
  for (; first < head.d; ++first)
    for (int t = 0; t < Tokens; ++t) {
      float sum = 0;
      for (std::int64_t i = 0; i < head.d; ++i)
        sum += head.x[(token + t) * head.row + i] * head.block[i * head.d + first];
      head.y[(token + t) * head.row + first] = sum;
    }
}

struct MultiplyHead {
  template <int Lanes>
  HS_INLINED static void run(const Head* head, std::int64_t tokens) {
    constexpr int kTokens = Lanes == 16 ? 6 : 4;
    std::int64_t token = 0;
    for (; token + kTokens <= tokens; token += kTokens) multiply_tokens<Lanes, kTokens>(*head, token);
    for (; token < tokens; ++token) multiply_tokens<Lanes, 1>(*head, token);
  }
};

}  // namespace

void multiply_heads(const HeadOperands& operands, float* y, int lanes) {
#pragma omp parallel for
  for (std::int64_t h = 0; h < operands.heads; ++h) {
    const std::int64_t d = operands.d;
    const Head head{operands.x + h * d, operands.blocks + h * d * d, y + h * d, operands.heads * d, d};
    run_with<MultiplyHead>(lanes, &head, operands.tokens);
  }
}

}  // namespace headspan
