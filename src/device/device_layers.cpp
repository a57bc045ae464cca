#include "device/device_layers.h"

#include <algorithm>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "device/device_values.h"

namespace headspan {
namespace {

/// Returns the layer's moments on the device, multiplied by `scale`, [n], on both sides: [n, n], both
/// triangles.
at::Tensor scaled_moments(const LayerTiles& layer, const TileView* tiles, const at::Tensor& scale) {
  const std::int64_t n = scale.numel();
  const bool pinned = !scale.device().is_cpu();
  const at::Tensor host = at::empty({n, n}, at::dtype(at::kDouble).pinned_memory(pinned));
  assemble(layer.heads, layer.d, tiles, host.data_ptr<double>());  // column-major: the transpose in ATen
  const at::Tensor half = host.to(scale.device(), /*non_blocking=*/true);
  at::Tensor whole = at::triu(half);
  whole.add_(at::triu(half, 1).t());
  return whole.mul_(scale).mul_(scale.unsqueeze(1));
}

/// Returns the inverse of a positive definite matrix [n, n], or of each of [k, n, n]; undefined if one of
/// them is not positive definite.
at::Tensor spd_inverse(const at::Tensor& a) {
  const auto [lower, info] = at::linalg_cholesky_ex(a);
  if (info.ne(0).any().item<bool>()) return {};
  return at::cholesky_inverse(lower);
}

/// Returns the diagonal tiles: [heads, d, d].
at::Tensor diagonal_tiles(const at::Tensor& a, std::int64_t heads, std::int64_t d) {
  return a.view({heads, d, heads, d}).diagonal(0, 0, 2).permute({2, 0, 1}).contiguous();
}

std::optional<LayerResiduals> invert(const LayerTiles& layer, at::Device device) {
  const c10::DeviceGuard on(device);
  const auto heads = static_cast<std::int64_t>(layer.heads.size());
  const std::int64_t d = layer.d, n = heads * d;
  const at::Tensor sst =
      at::from_blob(const_cast<double*>(layer.sst), {n}, at::kDouble).to(device, false, /*copy=*/true);
  const at::Tensor scale = sst.rsqrt();
  const at::Tensor p = spd_inverse(scaled_moments(layer, layer.fit, scale));
  if (!p.defined() || !(p.trace().item<double>() <= kMostInflation * static_cast<double>(n))) return {};
  const at::Tensor covariance = spd_inverse(diagonal_tiles(p, heads, d));
  if (!covariance.defined()) return {};
  LayerResiduals residuals{to_vector(covariance.diagonal(0, 1, 2).flatten() * sst), {}};
  if (layer.heldout == nullptr) return residuals;
  const at::Tensor pm = at::mm(p, scaled_moments(layer, layer.heldout, scale));
  const at::Tensor pmp = at::bmm(pm.view({heads, d, n}), p.view({heads, d, n}).transpose(1, 2));
  const at::Tensor errors = at::bmm(covariance, pmp).mul_(covariance).sum(2);
  residuals.errors_heldout = to_vector(errors.flatten() * sst);
  return residuals;
}

}  // namespace

LayerInverse device_layer_inverse(at::Device device) {
  return [device](const LayerTiles& layer) { return invert(layer, device); };
}

std::int64_t device_layer_bytes(const HeadLayout& layout) {
  // [n, n] matrices: the moments, their triangles and both together, the factor, the inverse and its
  // workspace, with two to spare.
  constexpr std::int64_t kSquares = 8;
  std::int64_t heads = 0;
  for (const LayerTargets& layer : whole_layers(layout)) heads = std::max(heads, layer.last - layer.first);
  const std::int64_t n = heads * layout.head_size;
  return kSquares * static_cast<std::int64_t>(sizeof(double)) * n * n;
}

}  // namespace headspan
