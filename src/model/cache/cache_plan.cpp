#include "model/cache/cache_plan.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <ATen/ATen.h>

#include "base/error.h"
#include "model/core/hadamard.h"

namespace headspan {
namespace {

template <class T>
at::Tensor tensor(const std::vector<T>& values, const std::vector<std::int64_t>& shape,
                  at::ScalarType dtype) {
  at::Tensor out = at::empty(shape, at::CppTypeToScalarType<T>::value);
  HS_ASSERT(out.numel() == static_cast<std::int64_t>(values.size()));
  std::copy(values.begin(), values.end(), out.data_ptr<T>());
  return out.to(dtype);
}

/// Returns a layer that stores the columns of `heads` heads as they are, in `bands`; each head reads its own
/// columns.
CachedLayer plain_layer(std::int64_t layer, std::int64_t heads, std::int64_t d, std::vector<Band> bands) {
  CachedLayer cached;
  cached.kv_heads = heads;
  cached.block.bands = std::move(bands);
  StoredSlice slice{layer, 0, heads * d, {}};
  for (std::int64_t h = 0; h < heads; ++h) slice.decoders.push_back({h * d, d, {h}, {}});
  cached.slices = {slice};
  return cached;
}

CachedLayer plain_layer(std::int64_t layer, std::int64_t heads, std::int64_t d) {
  return plain_layer(layer, heads, d, {{heads * d}});
}

/// Builds one stream of a cache plan: `local` are the heads of this rank, which contribute to its blocks;
/// `heads` are those that read them.
class PlanBuilder {
 public:
  PlanBuilder(const CompressionPlan& plan, Stream stream, Range local, Range heads, at::ScalarType dtype)
      : plan_(plan),
        keys_(stream == Stream::k),
        blocks_(plan.streams.at(stream)),
        local_(local),
        heads_(heads),
        dtype_(dtype),
        d_(plan.head_size),
        shared_(local.count != plan.kv_heads) {}

  CachedLayer layer(std::int64_t layer) const {
    const PlannedBlock& block = blocks_[static_cast<std::size_t>(layer)];
    if (rounds_columns(plan_.algorithm)) return rounded_columns(layer, block);
    return plan_.algorithm == CompressionAlgorithm::latent ? latents(layer, block) : head_maps(layer, block);
  }

 private:
  CachedLayer rounded_columns(std::int64_t layer, const PlannedBlock& block) const {
    CachedLayer cached = plain_layer(layer, heads_.count, d_, local_bands(block));
    if (uses_hadamard(plan_.algorithm))
      cached.block.rotation = hadamard(d_).to(dtype_).expand({heads_.count, d_, d_});
    else if (!block.rotation.empty())
      cached.block.rotation = tensor(block.rotation, {plan_.kv_heads, d_, d_}, dtype_)
                                  .narrow(0, heads_.first, heads_.count)
                                  .contiguous();
    else
      return cached;
    std::int64_t head = 0;
    for (HeadDecoder& decoder : cached.slices.front().decoders)
      decoder.matrix = as_read(cached.block.rotation.narrow(0, head++, 1).transpose(1, 2));
    return cached;
  }

  /// Returns the bands of this rank's columns.
  std::vector<Band> local_bands(const PlannedBlock& block) const {
    const std::int64_t begin = heads_.first * d_, end = begin + heads_.count * d_;
    std::vector<Band> bands;
    std::int64_t first = 0;
    for (Band band : block.bands) {
      const std::int64_t last = first + band.columns;
      band.columns = std::min(last, end) - std::max(first, begin);
      if (band.columns > 0) bands.push_back(band);
      first = last;
    }
    return bands;
  }

  CachedLayer latents(std::int64_t layer, const PlannedBlock& block) const {
    const std::int64_t all = plan_.columns(), first = local_.first * d_, count = local_.count * d_;
    CachedLayer cached;
    cached.kv_heads = heads_.count;
    cached.block.bands = block.bands;
    cached.block.weights = block.weights;
    cached.block.shared = shared_;
    cached.block.mean = tensor(block.mean, {all}, dtype_).narrow(0, first, count).contiguous();
    cached.bias = tensor(block.bias, {plan_.kv_heads, 1, d_}, dtype_).narrow(0, heads_.first, heads_.count);
    const auto r = static_cast<std::int64_t>(block.reconstruction.size()) / all;
    cached.block.projection = r == 0 ? at::zeros({count, 0}, dtype_)
                                     : tensor(block.projection, {all, r}, dtype_).narrow(0, first, count);
    if (r == 0) return cached;
    HeadDecoder decoder{0, r, {}, {}};
    for (std::int64_t h = 0; h < heads_.count; ++h) decoder.heads.push_back(h);
    decoder.matrix = as_read(tensor(block.reconstruction, {r, plan_.kv_heads, d_}, dtype_)
                                 .narrow(1, heads_.first, heads_.count)
                                 .permute({1, 0, 2}));
    cached.slices = {{layer, 0, r, {decoder}}};
    return cached;
  }

  /// Returns maps: [heads, count, d] in the layout in which attention reads them.
  at::Tensor as_read(const at::Tensor& maps) const {
    return keys_ ? maps.transpose(1, 2).contiguous().transpose(1, 2) : maps.contiguous();
  }

  /// How heads read one kept head: a matrix [d, d] for each of them.
  using Maps = std::map<std::int64_t, at::Tensor>;

  CachedLayer head_maps(std::int64_t layer, const PlannedBlock& block) const {
    CachedLayer cached;
    cached.kv_heads = heads_.count;
    cached.block.bands = block.bands;
    cached.block.shared = shared_;
    cached.block.kept = block.kept;
    cached.bias = at::zeros({heads_.count, 1, d_}, dtype_);
    std::map<std::int64_t, Maps> maps;  // by kept head, numbered over all layers
    for (const std::int64_t head : block.kept)
      if (reads(head)) maps[layer * plan_.kv_heads + head][head - heads_.first] = at::eye(d_, dtype_);
    const at::Tensor all =
        block.targets.empty()
            ? at::Tensor()
            : tensor(block.map, {static_cast<std::int64_t>(block.targets.size()), plan_.references, d_, d_},
                     dtype_);
    for (std::size_t t = 0; t < block.targets.size(); ++t) {
      const std::int64_t target = block.targets[t];
      if (!reads(target)) continue;
      const auto row = static_cast<std::int64_t>(t);
      for (std::int64_t i = 0; i < plan_.references; ++i) {
        const std::int64_t head = block.references[static_cast<std::size_t>(row * plan_.references + i)];
        if (head >= 0) maps[head][target - heads_.first] = all[row][i];
      }
      for (std::int64_t j = 0; j < d_; ++j)
        cached.bias[target - heads_.first][0][j] = block.bias[static_cast<std::size_t>(row * d_ + j)];
    }
    for (const auto& [head, maps_of_head] : maps) cached.slices.push_back(slice(head, maps_of_head));
    return cached;
  }

  bool reads(std::int64_t head) const { return head >= heads_.first && head < heads_.first + heads_.count; }

  StoredSlice slice(std::int64_t head, const Maps& maps) const {
    const std::int64_t layer = head / plan_.kv_heads;
    const auto& kept = blocks_[static_cast<std::size_t>(layer)].kept;
    const std::int64_t index = std::find(kept.begin(), kept.end(), head % plan_.kv_heads) - kept.begin();
    HeadDecoder decoder{0, d_, {}, {}};
    std::vector<at::Tensor> matrices;
    for (const auto& [reader, matrix] : maps) {
      decoder.heads.push_back(reader);
      matrices.push_back(matrix);
    }
    decoder.matrix = as_read(at::stack(matrices));
    return {layer, index * d_, d_, {decoder}};
  }

  const CompressionPlan& plan_;
  const bool keys_;
  const std::vector<PlannedBlock>& blocks_;
  Range local_, heads_;
  at::ScalarType dtype_;
  std::int64_t d_;
  bool shared_;
};

/// Returns the plan of a full cache that is sharded: every head of all ranks as it is.
CachePlan sharded_full_plan(const ModelConfig& config) {
  CachePlan plan = full_plan(config, {0, config.kv_heads});
  plan.shared = SharedBlocks::sharded;
  std::vector<std::int64_t> all(static_cast<std::size_t>(config.kv_heads));
  std::iota(all.begin(), all.end(), 0);
  for (auto* layers : {&plan.keys, &plan.values})
    for (CachedLayer& layer : *layers) {
      layer.block.shared = true;
      layer.block.kept = all;
    }
  return plan;
}

/// Throws InputError if columns that share a scale lie on two ranks, of `columns` columns each.
void expect_whole_groups(const std::vector<PlannedBlock>& blocks, std::int64_t columns,
                         const std::string& path) {
  for (const PlannedBlock& block : blocks) {
    std::int64_t first = 0;
    for (const Band& band : block.bands) {
      const std::int64_t last = first + band.columns;
      if (band.tokens == 1 && band.bits != kPlainBits && first / columns < (last - 1) / columns)
        throw InputError(path, "band_columns", std::to_string(band.columns),
                         "is a group of columns that two tensor-parallel ranks would have to share",
                         "give run.tensor_parallel = 1");
      first = last;
    }
  }
}

void set_attention(const ModelConfig& config, CachePlan& plan) {
  for (auto* layers : {&plan.keys, &plan.values})
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      (*layers)[static_cast<std::size_t>(layer)].attention = config.attention_in(layer);
}

}  // namespace

CachePlan full_plan(const ModelConfig& config, Range heads) {
  CachePlan plan;
  plan.head_size = config.head_size;
  for (std::int64_t layer = 0; layer < config.layers; ++layer)
    plan.keys.push_back(plain_layer(layer, heads.count, config.head_size));
  plan.values = plan.keys;
  set_attention(config, plan);
  return plan;
}

CachePlan make_cache_plan(const ModelConfig& config, const CompressionPlan& plan, Range heads,
                          at::ScalarType dtype, SharedBlocks shared, const std::string& path) {
  if (plan.layers != config.layers || plan.kv_heads != config.kv_heads || plan.head_size != config.head_size)
    throw InputError(path, "layers, kv_heads, head_size",
                     std::to_string(plan.layers) + ", " + std::to_string(plan.kv_heads) + ", " +
                         std::to_string(plan.head_size),
                     "are not those of the model (" + std::to_string(config.layers) + ", " +
                         std::to_string(config.kv_heads) + ", " + std::to_string(config.head_size) + ")",
                     "give a plan that was calibrated on this model");
  const bool sharded = shared == SharedBlocks::sharded && heads.count != config.kv_heads &&
                       !rounds_columns(plan.algorithm) && config.has_plain_attention();
  CachePlan cached = sharded ? sharded_full_plan(config) : full_plan(config, heads);
  const Range readers = sharded ? Range{0, config.kv_heads} : heads;
  cached.exact.first = plan.exact_first;
  cached.exact.group = plan.group_tokens();
  for (const auto& [stream, blocks] : plan.streams) {
    if (rounds_columns(plan.algorithm)) expect_whole_groups(blocks, heads.count * config.head_size, path);
    const PlanBuilder builder(plan, stream, heads, readers, dtype);
    auto& layers = stream == Stream::k ? cached.keys : cached.values;
    for (std::int64_t layer = 0; layer < config.layers; ++layer)
      layers[static_cast<std::size_t>(layer)] = builder.layer(layer);
  }
  set_attention(config, cached);
  return cached;
}

CachePlan one_block_plan(const ModelConfig& config, const CompressionPlan& plan, Stream stream,
                         std::int64_t layer, Range heads, at::ScalarType dtype) {
  CachePlan cached = full_plan(config, heads);
  cached.exact.first = plan.exact_first;
  cached.exact.group = plan.group_tokens();
  (stream == Stream::k ? cached.keys : cached.values)[static_cast<std::size_t>(layer)] =
      PlanBuilder(plan, stream, heads, heads, dtype).layer(layer);
  set_attention(config, cached);
  return cached;
}

}  // namespace headspan
