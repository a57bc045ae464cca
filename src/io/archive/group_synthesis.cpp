#include "io/archive/group_synthesis.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/process/cpu_dispatch.h"
#include "dist/kernels/linear_kernel.h"

namespace headspan {
namespace {

constexpr float kUnitsOfStep = 16;  // at least: units that coefficients are rounded to
constexpr float kLargest = ByteMatrix::kLargest - 1, kLargestByte = 126;  // with room for rounding

/// Coefficients, and what they are multiplied by: [tokens, count], [count].
struct ScaledRows {
  const float* coefficients;
  const float* scale;
  std::int64_t tokens, count;

  HS_INLINED float value(std::int64_t t, std::int64_t j) const {
    return coefficients[t * count + j] * scale[j];
  }
};

/// Sets sizes to the largest of each column: [count].
void set_sizes(const ScaledRows& rows, float* sizes) {
  on_this_processor([rows, sizes]() HS_INLINED {
    for (std::int64_t t = 0; t < rows.tokens; ++t)
      for (std::int64_t j = 0; j < rows.count; ++j) {
        const float value = rows.value(t, j), size = value < 0 ? -value : value;
        sizes[j] = sizes[j] < size ? size : sizes[j];
      }
    return 0;
  });
}

/// Sets integers to the rows in units, rounded.
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

/// Adds factor times the integers to x: [count].
template <class T>
void add_integers(const T* integers, float factor, std::int64_t count, float* x) {
  on_this_processor([=]() HS_INLINED {
    for (std::int64_t i = 0; i < count; ++i) x[i] += static_cast<float>(integers[i]) * factor;
    return 0;
  });
}

/// Adds a row to each row of x: [tokens, columns].
void add_row(const float* row, std::int64_t tokens, std::int64_t columns, float* x) {
  on_this_processor([=]() HS_INLINED {
    for (std::int64_t t = 0; t < tokens; ++t)
      for (std::int64_t k = 0; k < columns; ++k) x[t * columns + k] += row[k];
    return 0;
  });
}

}  // namespace

GroupSynthesis::GroupSynthesis(const KvCodec& codec, const CodecGroup& group, bool bytes)
    : group_(group),
      head_size_(codec.head_size),
      columns_(codec.columns(group)),
      coefficients_(group.coefficients()) {
  if (bytes) {
    basis_.emplace(group.basis.data(), coefficients_, columns_);
    return;
  }
  const std::int64_t d = head_size_;
  backward_.resize(group.basis.size());
  for (std::int64_t j = 0; j < coefficients_; ++j)
    for (std::int64_t k = 0; k < columns_; ++k) {
      const float* const block = &group.unwhitening[to_size(k * d)];
      const float element =
          static_cast<float>(group.basis[to_size(j * columns_ + k)]) * group.scale[to_size(j)];
      for (std::int64_t i = 0; i < d; ++i)
        backward_[to_size((k / d * d + i) * coefficients_ + j)] += element * block[i];
    }
}

void GroupSynthesis::run(std::vector<float> coefficients, std::int64_t tokens, std::int64_t count, float step,
                         float* x) const {
  if (count == 0)
    std::fill_n(x, tokens * columns_, 0.0F);
  else if (basis_)
    multiply_bytes(std::move(coefficients), tokens, count, step, x);
  else
    multiply_linear<float>({coefficients.data(), tokens, count, backward_.data(), columns_, coefficients_},
                           x);
  add_row(group_.mean.data(), tokens, columns_, x);
}

void GroupSynthesis::multiply_bytes(std::vector<float> coefficients, std::int64_t tokens, std::int64_t count,
                                    float step, float* x) const {
  const float* const scale = group_.scale.data();
  const float finest = step * *std::min_element(scale, scale + count) / kUnitsOfStep;
  std::vector<float> whitened(to_size(tokens * columns_));
  std::vector<std::int16_t> integers(coefficients.size());
  std::vector<std::int32_t> sums(whitened.size());
  for (;;) {  // once, unless the step is tiny: then what rounding leaves is multiplied as well
    const ScaledRows rows{coefficients.data(), scale, tokens, count};
    std::vector<float> sizes(to_size(count));
    set_sizes(rows, sizes.data());
    const float unit = std::max(finest, *std::max_element(sizes.begin(), sizes.end()) / kLargest);
    round_rows(rows, unit, integers.data());
    std::int64_t wide = count;
    while (wide > 0 && sizes[to_size(wide - 1)] < kLargestByte * unit) --wide;
    basis_->multiply(integers.data(), tokens, count, wide, sums.data());
    add_integers(sums.data(), unit, tokens * columns_, whitened.data());
    if (unit <= finest) break;
    for (std::size_t k = 0; k < coefficients.size(); ++k)
      coefficients[k] -= static_cast<float>(integers[k]) * unit / scale[k % to_size(count)];
  }
  const std::int64_t d = head_size_;
  std::vector<float> head(to_size(tokens * d)), found(head.size());
  for (std::int64_t first = 0; first < columns_; first += d) {
    for (std::int64_t t = 0; t < tokens; ++t)
      std::copy_n(&whitened[to_size(t * columns_ + first)], d, &head[to_size(t * d)]);
    multiply_linear<float>({head.data(), tokens, d, &group_.unwhitening[to_size(first * d)], d},
                           found.data());
    for (std::int64_t t = 0; t < tokens; ++t)
      std::copy_n(&found[to_size(t * d)], d, x + t * columns_ + first);
  }
}

}  // namespace headspan
