#include "model/forward/rope.h"

#include <cmath>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

namespace headspan {
namespace {

/// Rotates float32 or float64 on the CPU, in one pass over memory.
template <class T>
at::Tensor rotate_heads(const at::Tensor& x, const RopeTable& table) {
  const std::int64_t heads = x.size(1), half = x.size(2) / 2;
  at::Tensor rotated = at::empty(x.sizes(), x.options());
  const T *in = x.data_ptr<T>(), *cosines = table.cos.data_ptr<T>(), *sines = table.sin.data_ptr<T>();
  T* out = rotated.data_ptr<T>();
  at::parallel_for(0, x.size(0), 64, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t row = begin * heads; row < end * heads; ++row) {
      const T *low = in + row * 2 * half, *high = low + half;
      const T *c = cosines + row / heads * half, *s = sines + row / heads * half;
      T *out_low = out + row * 2 * half, *out_high = out_low + half;
#pragma omp simd
      for (std::int64_t i = 0; i < half; ++i) {
        out_low[i] = low[i] * c[i] - high[i] * s[i];
        out_high[i] = high[i] * c[i] + low[i] * s[i];
      }
    }
  });
  return rotated;
}

/// Rotates any dtype, with the operations of transformers in their order.
at::Tensor rotate_plain(const at::Tensor& x, const RopeTable& table) {
  const std::int64_t half = x.size(-1) / 2;
  const at::Tensor low = x.narrow(-1, 0, half), high = x.narrow(-1, half, half);
  return at::cat({low * table.cos - high * table.sin, high * table.cos + low * table.sin}, -1)
      .to(x.scalar_type());
}

}  // namespace

at::Tensor rope_frequencies(const ModelConfig& config, at::ScalarType dtype) {
  const auto d = static_cast<double>(config.head_size);
  at::Tensor plain = at::pow(config.rope_theta, at::arange(0, config.head_size, 2, dtype) / d).reciprocal();
  if (!config.rope_scaling) return plain;
  const Llama3Scaling& scaling = *config.rope_scaling;
  // wave = original context / wavelength. A frequency is unchanged if wave is above high_freq_factor, divided
  // by the factor if it is below low_freq_factor, and interpolated in between.
  const at::Tensor wave = plain * (scaling.original_max_positions / (2 * M_PI));
  const at::Tensor keep =
      ((wave - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)).clamp(0, 1);
  return (1 - keep) * plain / scaling.factor + keep * plain;
}

RopeTable make_rope_table(const ModelConfig& config, const std::vector<std::int64_t>& starts,
                          const std::vector<std::int64_t>& lengths, at::ScalarType dtype) {
  const at::ScalarType wide = dtype == at::kDouble ? at::kDouble : at::kFloat;
  std::vector<at::Tensor> positions;
  for (std::size_t s = 0; s < lengths.size(); ++s)
    positions.push_back(at::arange(starts[s], starts[s] + lengths[s], wide));
  const at::Tensor angles = at::cat(positions).view({-1, 1, 1}) * rope_frequencies(config, wide);
  const at::ScalarType kept = config.round_once ? wide : dtype;
  return {angles.cos().to(kept), angles.sin().to(kept)};
}

at::Tensor rotate(const at::Tensor& x, const RopeTable& table) {
  if (x.is_cpu() && x.scalar_type() == at::kFloat) return rotate_heads<float>(x, table);
  if (x.is_cpu() && x.scalar_type() == at::kDouble) return rotate_heads<double>(x, table);
  return rotate_plain(x, table);
}

}  // namespace headspan
