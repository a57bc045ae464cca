#include "model/weights/projections.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "model/weights/weight_initializer.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

const Linear& linear(const LayerWeights& layer, Stream stream) {
  return stream == Stream::q ? layer.q : stream == Stream::k ? layer.k : layer.v;
}

/// Returns the gain of the norm after the projection; undefined if there is none.
at::Tensor norm_gain(const LayerWeights& layer, Stream stream) {
  if (stream == Stream::v) return {};
  return stream == Stream::q ? layer.q_norm : layer.k_norm;
}

std::vector<double> to_doubles(const at::Tensor& values) {
  const at::Tensor wide = values.to(at::kDouble).contiguous();
  return {wide.data_ptr<double>(), wide.data_ptr<double>() + wide.numel()};
}

}  // namespace

Projections::Projections(const ModelConfig& config, const Checkpoint& checkpoint)
    : config_(config),
      checkpoint_(&checkpoint),
      weights_(allocate_weights(config, {config.layers, false}, {}, at::kByte, at::kMeta)) {}

Projections::Projections(const ModelConfig& config, std::uint64_t seed, Dtype dtype)
    : config_(config),
      seed_(seed),
      dtype_(dtype),
      weights_(allocate_weights(config, {config.layers, false}, {}, at::kByte, at::kMeta)) {}

std::int64_t Projections::heads(Stream stream) const { return config_.heads_of(stream); }

bool Projections::has_gain(Stream stream) const { return norm_gain(weights_.layers.at(0), stream).defined(); }

at::Tensor Projections::read(const WeightSlice& part) const {
  if (checkpoint_ != nullptr) return read_slice(*checkpoint_, part);
  WeightSlice slice = part;
  std::vector<std::int64_t> shape(slice.shape);
  shape[0] = slice.rows.count;
  slice.values = at::empty(shape, scalar_type(dtype_));
  initialize_slice(config_, seed_, slice);
  return slice.values;
}

/// Reads rows of the tensor that `weight`, a tensor of `weights_` without data, stands for. Its rows may come
/// from several slices.
at::Tensor Projections::read(const at::Tensor& weight, Range rows) const {
  const c10::InferenceMode inference;
  std::vector<at::Tensor> parts;
  for (const WeightSlice& slice : weights_.slices) {
    if (!slice.values.is_alias_of(weight)) continue;
    const std::int64_t first = slice.values.storage_offset() / slice.values.stride(0);  // row of the weight
    const std::int64_t begin = std::max(first, rows.first),
                       end = std::min(first + slice.rows.count, rows.first + rows.count);
    if (begin >= end) continue;
    WeightSlice part = slice;
    part.rows = {slice.rows.first + begin - first, end - begin};
    parts.push_back(read(part));
  }
  HS_ASSERT(!parts.empty());
  return at::cat(parts);
}

std::vector<double> Projections::columns(std::int64_t layer, Stream stream, std::int64_t first,
                                         std::int64_t count) const {
  const LayerWeights& weights = weights_.layers.at(static_cast<std::size_t>(layer));
  return to_doubles(read(linear(weights, stream).weight, {first, count}));
}

std::vector<double> Projections::gain(std::int64_t layer, Stream stream) const {
  const std::int64_t size = heads(stream) * config_.head_size;
  const at::Tensor stored = norm_gain(weights_.layers.at(static_cast<std::size_t>(layer)), stream);
  if (!stored.defined()) return std::vector<double>(static_cast<std::size_t>(size), 1.0);
  std::vector<double> gains = to_doubles(read(stored, {0, stored.size(0)}));
  for (double& gain : gains) gain += config_.norm.gain_offset;
  std::vector<double> all;
  while (static_cast<std::int64_t>(all.size()) < size) all.insert(all.end(), gains.begin(), gains.end());
  return all;
}

}  // namespace headspan
