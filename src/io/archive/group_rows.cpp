#include "io/archive/group_rows.h"

#include <algorithm>
#include <cmath>

namespace headspan {
namespace {

template <class T>
void add_scaled(const T* integers, float factor, std::int64_t count, float* x) {
  on_this_processor([=]() HS_INLINED {
    for (std::int64_t i = 0; i < count; ++i) x[i] += static_cast<float>(integers[i]) * factor;
    return 0;
  });
}

double sum_of_squares(const float* x, std::int64_t count) {
  return on_this_processor([=]() HS_INLINED {
    double sums[16] = {};
    std::int64_t i = 0;
    for (; i + 16 <= count; i += 16)
      for (int k = 0; k < 16; ++k) sums[k] += static_cast<double>(x[i + k]) * static_cast<double>(x[i + k]);
    for (; i < count; ++i) sums[0] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    double sum = 0;
    for (const double part : sums) sum += part;
    return sum;
  });
}

}  // namespace

void set_sizes(const ScaledRows& rows, float* sizes) {
  std::fill_n(sizes, rows.count, 0.0F);
  on_this_processor([rows, sizes]() HS_INLINED {
    for (std::int64_t t = 0; t < rows.tokens; ++t)
      for (std::int64_t j = 0; j < rows.count; ++j) {
        const float value = rows.value(t, j), size = value < 0 ? -value : value;
        sizes[j] = sizes[j] < size ? size : sizes[j];
      }
    return 0;
  });
}

void add_squares(const float* rows, std::int64_t tokens, std::int64_t count, float* sums) {
  on_this_processor([=]() HS_INLINED {
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t j = 0; j < count; ++j) sums[j] += rows[t * count + j] * rows[t * count + j];
    return 0;
  });
}

float largest_norm(const float* rows, std::int64_t tokens, std::int64_t count) {
  double most = 0;
  for (std::int64_t t = 0; t < tokens; ++t) {
    const double square = sum_of_squares(rows + t * count, count);
    if (!std::isfinite(square)) return INFINITY;
    most = std::max(most, square);
  }
  return static_cast<float>(std::sqrt(most));
}

void round_rows(const ScaledRows& rows, float unit, std::int16_t* integers) {
  on_this_processor([rows, per_unit = 1 / unit, integers]() HS_INLINED {
    for (std::int64_t t = 0; t < rows.tokens; ++t)
      for (std::int64_t j = 0; j < rows.count; ++j) {
        const float value = rows.value(t, j) * per_unit;
        integers[t * rows.count + j] = static_cast<std::int16_t>(value + (value < 0 ? -0.5F : 0.5F));
      }
    return 0;
  });
}

void add_integers(const std::int32_t* integers, float factor, std::int64_t count, float* x) {
  add_scaled(integers, factor, count, x);
}

void add_integers(const std::int16_t* integers, float factor, std::int64_t count, float* x) {
  add_scaled(integers, factor, count, x);
}

void add_row(const float* row, float factor, std::int64_t tokens, std::int64_t count, float* x) {
  on_this_processor([=]() HS_INLINED {
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t k = 0; k < count; ++k) x[t * count + k] += row[k] * factor;
    return 0;
  });
}

}  // namespace headspan
