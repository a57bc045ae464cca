#include "io/archive/group_synthesis.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "dist/kernels/head_product.h"
#include "dist/kernels/linear_kernel.h"
#include "io/archive/group_rows.h"

namespace headspan {
namespace {

constexpr float kMostSum = 1.9e9F;       // of 2^31, with room for rows that are not quite orthonormal
constexpr float kUnitsOfStep = 16;       // at least: units that coefficients are rounded to
constexpr float kLeastUnit = 0x1p-100F;  // whose inverse is finite, too
constexpr float kLargest = ByteMatrix::kLargest - 1;  // with room for rounding

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
  add_row(group_.mean.data(), 1, tokens, columns_, x);
}

void GroupSynthesis::multiply_bytes(std::vector<float> coefficients, std::int64_t tokens, std::int64_t count,
                                    float step, float* x) const {
  const float* const scale = group_.scale.data();
  const float finest = std::max(step * *std::min_element(scale, scale + count) / kUnitsOfStep, kLeastUnit);
  std::vector<float> whitened(to_size(tokens * columns_));
  std::vector<std::int16_t> integers(coefficients.size());
  std::vector<std::int32_t> sums(whitened.size());
  for (;;) {  // once, unless the step is tiny: then what rounding leaves is multiplied as well
    const ScaledRows rows{coefficients.data(), scale, tokens, count};
    std::vector<float> sizes(to_size(count));
    set_sizes(rows, sizes.data());
    const float largest = *std::max_element(sizes.begin(), sizes.end()),
                largest_sum = largest_norm(coefficients.data(), tokens, count),
                unit = std::max({finest, largest / kLargest, largest_sum / kMostSum});
    round_rows(rows, unit, integers.data());
    basis_->multiply(integers.data(), {tokens, count, columns_}, sums.data());
    add_integers(sums.data(), unit, tokens * columns_, whitened.data());
    if (unit <= finest) break;
    for (std::size_t k = 0; k < coefficients.size(); ++k)
      coefficients[k] -= static_cast<float>(integers[k]) * unit / scale[k % to_size(count)];
  }
  multiply_heads({whitened.data(), tokens, columns_ / head_size_, head_size_, group_.unwhitening.data()}, x);
}

}  // namespace headspan
