// Loops over the rows of a group, one for each token, compiled for this processor: of columns, [tokens, D],
// or of coefficients. Parts of GroupAnalysis and GroupSynthesis.
#pragma once

#include <cstdint>

#include "base/process/cpu_dispatch.h"

namespace headspan {

/// Rows that are multiplied by a factor per column: [tokens, count], [count].
struct ScaledRows {
  const float* values;
  const float* factors;
  std::int64_t tokens, count;

  HS_INLINED float value(std::int64_t t, std::int64_t j) const { return values[t * count + j] * factors[j]; }
};

/// Sets sizes, [count], to the largest of each column by size.
void set_sizes(const ScaledRows& rows, float* sizes);

/// Returns the largest Euclidean norm of a row, [tokens, count]; infinity if a number is not finite.
float largest_norm(const float* rows, std::int64_t tokens, std::int64_t count);

/// Adds the squares of each column of the rows, [tokens, count], to sums: [count].
void add_squares(const float* rows, std::int64_t tokens, std::int64_t count, float* sums);

/// Sets integers, [tokens, count], to the rows in units, rounded. They must fit.
void round_rows(const ScaledRows& rows, float unit, std::int16_t* integers);

/// Adds factor times the integers to x: [count].
void add_integers(const std::int32_t* integers, float factor, std::int64_t count, float* x);
void add_integers(const std::int16_t* integers, float factor, std::int64_t count, float* x);

/// Adds factor times a row, [count], to each row of x: [tokens, count].
void add_row(const float* row, float factor, std::int64_t tokens, std::int64_t count, float* x);

}  // namespace headspan
