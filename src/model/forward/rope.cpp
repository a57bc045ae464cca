#include "model/forward/rope.h"

#include <algorithm>
#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace headspan {
namespace {

/// Rotates float32 or float64 on the CPU, in one pass over memory.
template <class T>
at::Tensor rotate_heads(const at::Tensor& x, const RopeTable& table) {
  const std::int64_t heads = x.size(1), size = x.size(2), half = table.cos.size(-1);
  at::Tensor rotated = at::empty(x.sizes(), x.options());
  const T *in = x.data_ptr<T>(), *cosines = table.cos.data_ptr<T>(), *sines = table.sin.data_ptr<T>();
  T* out = rotated.data_ptr<T>();
  at::parallel_for(0, x.size(0), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin * heads; row < end * heads; ++row) {
      const T *low = in + row * size, *high = low + half;
      const T *c = cosines + row / heads * half, *s = sines + row / heads * half;
      T *out_low = out + row * size, *out_high = out_low + half;
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        out_low[i] = low[i] * c[i] - high[i] * s[i];
        out_high[i] = high[i] * c[i] + low[i] * s[i];
      }
      std::copy(low + 2 * half, low + size, out_low + 2 * half);
    }
  });
  return rotated;
}

// Frequencies of a scaling. plain: those without any, theta^(-2 i / r), [r/2].

at::Tensor scaled(const std::monostate&, const RopeRule&, const at::Tensor& plain, std::int64_t) {
  return plain;
}

at::Tensor scaled(const LinearScaling& scaling, const RopeRule&, const at::Tensor& plain, std::int64_t) {
  return plain / scaling.factor;
}

at::Tensor scaled(const Llama3Scaling& scaling, const RopeRule&, const at::Tensor& plain, std::int64_t) {
  // wave = original context / wavelength. A frequency is unchanged if wave is above high_freq_factor, divided
  // by the factor if it is below low_freq_factor, and interpolated in between.
  const at::Tensor wave = plain * (scaling.original_max_positions / (2 * M_PI));
  const at::Tensor keep =
      ((wave - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)).clamp(0, 1);
  return (1 - keep) * plain / scaling.factor + keep * plain;
}

at::Tensor scaled(const YarnScaling& scaling, const RopeRule& rule, const at::Tensor& plain, std::int64_t) {
  const auto pairs = plain.size(0);
  const double size = 2 * static_cast<double>(pairs);
  // The pair of coordinates that turns so many times in the original context.
  const auto pair_of = [&](double turns) {
    return size * std::log(scaling.original_max_positions / (turns * 2 * M_PI)) / (2 * std::log(rule.theta));
  };
  double low = pair_of(scaling.beta_fast), high = pair_of(scaling.beta_slow);
  if (scaling.rounds_range) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, size - 1);
  if (low == high) high += 0.001;
  const at::Tensor divide = ((at::arange(pairs, plain.options()) - low) / (high - low)).clamp(0, 1);
  return plain / scaling.factor * divide + plain * (1 - divide);
}

at::Tensor scaled(const LongRopeScaling& scaling, const RopeRule&, const at::Tensor& plain,
                  std::int64_t length) {
  const bool is_long = static_cast<double>(length) > scaling.original_max_positions;
  return plain / at::tensor(is_long ? scaling.long_factors : scaling.short_factors, plain.options());
}

}  // namespace

at::Tensor rope_frequencies(const RopeRule& rule, std::int64_t rotated, std::int64_t length,
                            at::ScalarType dtype) {
  const at::Tensor plain =
      at::pow(rule.theta, at::arange(0, rotated, 2, dtype) / static_cast<double>(rotated)).reciprocal();
  return std::visit([&](const auto& scaling) { return scaled(scaling, rule, plain, length); }, rule.scaling);
}

std::vector<float> rotary_frequencies(const RopeRule& rule, std::int64_t rotated) {
  const at::Tensor frequencies = rope_frequencies(rule, rotated, 0, at::kFloat).contiguous();
  const auto* const first = frequencies.data_ptr<float>();
  return {first, first + frequencies.numel()};
}

RopeTable make_rope_table(const RopeRule& rule, std::int64_t rotated, const RopePositions& positions,
                          at::ScalarType dtype) {
  const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<at::Tensor> parts;
  for (std::size_t s = 0; s < positions.lengths.size(); ++s) {
    const std::int64_t end = positions.starts[s] + positions.lengths[s];
    parts.push_back(at::arange(positions.starts[s], end, wide).unsqueeze(1) *
                    rope_frequencies(rule, rotated, end, wide));
  }
  const at::Tensor angles = at::cat(parts).unsqueeze(1);
  const at::ScalarType kept = rule.round_once ? wide : dtype;
  return {angles.cos().mul_(rule.length).to(kept), angles.sin().mul_(rule.length).to(kept)};
}

at::Tensor rotate_plain(const at::Tensor& x, const RopeTable& table) {
  const std::int64_t half = table.cos.size(-1), rest = x.size(-1) - 2 * half;
  const at::Tensor low = x.narrow(-1, 0, half), high = x.narrow(-1, half, half);
  const at::Tensor rotated =
      at::cat({low * table.cos - high * table.sin, high * table.cos + low * table.sin}, -1)
          .to(x.scalar_type());
  return rest == 0 ? rotated : at::cat({rotated, x.narrow(-1, 2 * half, rest)}, -1);
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table) {
  if (x.is_cpu() && x.scalar_type() == at::kFloat) return rotate_heads<float>(x, table);
  if (x.is_cpu() && x.scalar_type() == at::kDouble) return rotate_heads<double>(x, table);
  return rotate_plain(x, table);
}

}  // namespace headspan
