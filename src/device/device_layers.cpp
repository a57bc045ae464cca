#include "device/device_layers.h"

#include <algorithm>
#include <tuple>

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

namespace headspan {
namespace {

/// The layer's moments on the device, both triangles, both sides multiplied by scale: [n, n], scale: [n].
at::Tensor scaled_moments(const LayerTiles& layer, const TileView* tiles, const at::Tensor& scale) {
  const std::int64_t n = scale.numel();
  const bool pinned = !scale.device().is_cpu();
  const at::Tensor host = at::empty({n, n}, at::dtype(at::kDouble).pinned_memory(pinned));
  assemble(layer.heads, layer.d, tiles, host.data_ptr<double>());  // column-major: rows are columns here
  const at::Tensor half = host.to(scale.device(), /*non_blocking=*/true);
  at::Tensor whole = at::triu(half);
  whole.add_(at::triu(half, 1).t());
  return whole.mul_(scale).mul_(scale.unsqueeze(1));
}

/// The inverse of positive definite [n, n], or of each of [k, n, n]; undefined where one is not.
at::Tensor spd_inverse(const at::Tensor& a) {
  const auto [lower, info] = at::linalg_cholesky_ex(a);
  if (info.ne(0).any().item<bool>()) return {};
  return at::cholesky_inverse(lower);
}

/// The tiles on the diagonal: [heads, d, d].
at::Tensor diagonal_tiles(const at::Tensor& a, std::int64_t heads, std::int64_t d) {
  return a.view({heads, d, heads, d}).diagonal(0, 0, 2).permute({2, 0, 1}).contiguous();
}

std::vector<double> on_host(const at::Tensor& values) {
  const at::Tensor host = values.flatten().to(at::kCPU).contiguous();
  return {host.data_ptr<double>(), host.data_ptr<double>() + host.numel()};
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
  LayerResiduals residuals{on_host(covariance.diagonal(0, 1, 2).flatten() * sst), {}};
  if (layer.heldout == nullptr) return residuals;
  const at::Tensor pm = at::mm(p, scaled_moments(layer, layer.heldout, scale));
  const at::Tensor pmp = at::bmm(pm.view({heads, d, n}), p.view({heads, d, n}).transpose(1, 2));
  const at::Tensor errors = at::bmm(covariance, pmp).mul_(covariance).sum(2);
  residuals.errors_heldout = on_host(errors.flatten() * sst);
  return residuals;
}

}  // namespace

LayerInverse device_layer_inverse(at::Device device) {
  return [device](const LayerTiles& layer) { return invert(layer, device); };
}

std::int64_t device_layer_bytes(const HeadLayout& layout) {
  // The moments as they come, their triangles and the whole, the factor, the inverse and what it takes,
  // twice.
  constexpr std::int64_t kSquares = 8;
  std::int64_t most = 0;
  for (const LayerTargets& layer : whole_layers(layout)) most = std::max(most, layer.last - layer.first);
  const std::int64_t n = most * layout.head_size;
  return kSquares * static_cast<std::int64_t>(sizeof(double)) * n * n;
}

}  // namespace headspan
