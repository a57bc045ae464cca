#include "model/weights/weights.h"

#include <cmath>

#include <ATen/ops/empty.h>

#include "base/error.h"
#include "model/weights/large_tensor.h"

namespace headspan {
namespace {

at::Tensor make_tensor(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  return device.is_cpu() ? large_tensor(shape, dtype) : at::empty(shape, at::dtype(dtype).device(device));
}

/// Some rows of a stored tensor, which one or more linear layers share.
struct StoredRows {
  std::string name;           // of the layer, without ".weight"
  std::int64_t first, total;  // of those rows, and of all rows
};

/// Makes the tensors of one rank and records the slice that each holds.
class Builder {
 public:
  Builder(const ModelConfig& config, Shard shard, WeightTypes types, at::Device device)
      : config_(config), shard_(shard), types_(types), device_(device) {}

  /// Splits the outputs over the ranks in units of `unit` (a head): rows of the weight and of the bias.
  Linear split_outputs(const StoredRows& stored, std::int64_t outputs, std::int64_t unit, bool bias) {
    const Range share = split(outputs, unit), rows{stored.first + share.first, share.count};
    const bool shared = is_shared(share.count == outputs);
    Linear linear;
    linear.weight = make_tensor({rows.count, config_.hidden_size}, types_.matrices, device_);
    add_rows(stored, rows, shared, linear.weight);
    if (!bias) return linear;
    linear.bias = make_tensor({rows.count}, types_.vectors, device_);
    add_bias_rows(stored, rows, shared, linear.bias);
    return linear;
  }

  Linear split_outputs(const std::string& name, std::int64_t outputs, std::int64_t unit, bool bias) {
    return split_outputs(StoredRows{name, 0, outputs}, outputs, unit, bias);
  }

  /// Splits heads over the ranks, which are stored one after another, q, k and v of each. part: 0, 1, 2.
  Linear split_interleaved_heads(const std::string& name, std::int64_t part, bool bias) {
    const std::int64_t d = config_.head_size;
    const Range heads = split(config_.heads, 1);
    const StoredRows stored{name, 0, 3 * config_.heads * d};
    Linear linear;
    linear.weight = make_tensor({heads.count * d, config_.hidden_size}, types_.matrices, device_);
    if (bias) linear.bias = make_tensor({heads.count * d}, types_.vectors, device_);
    for (std::int64_t i = 0; i < heads.count; ++i) {
      const Range rows{(3 * (heads.first + i) + part) * d, d};
      add_rows(stored, rows, false, linear.weight.narrow(0, i * d, d));
      if (bias) add_bias_rows(stored, rows, false, linear.bias.narrow(0, i * d, d));
    }
    return linear;
  }

  /// Splits the inputs over the ranks: columns of the weight; the bias is on every rank.
  Linear split_inputs(const std::string& name, std::int64_t inputs, std::int64_t unit, bool bias) {
    const std::int64_t outputs = config_.hidden_size;
    const Range columns = split(inputs, unit);
    Linear linear;
    linear.weight = make_tensor({outputs, columns.count}, types_.matrices, device_);
    slices_.push_back({name + ".weight",
                       {outputs, inputs},
                       {0, outputs},
                       columns,
                       is_shared(columns.count == inputs),
                       WeightSlice::Role::linear,
                       0,
                       linear.weight,
                       ""});
    if (bias) linear.bias = constant(name + ".bias", outputs, {0, outputs}, 0);
    return linear;
  }

  /// Makes the weights of a norm; none if `name` is empty.
  NormWeights norm(const std::string& prefix, const std::string& name) {
    const Range all{0, config_.hidden_size};
    NormWeights weights;
    if (name.empty()) return weights;
    if (config_.norm.has_gain)
      weights.gain = constant(prefix + name + ".weight", all.count, all, initial_gain());
    if (config_.norm.has_bias) weights.bias = constant(prefix + name + ".bias", all.count, all, 0);
    return weights;
  }

  at::Tensor gain(const std::string& name, std::int64_t size) {
    return constant(name + ".weight", size, {0, size}, initial_gain());
  }

  at::Tensor split_gain(const std::string& name, std::int64_t size, std::int64_t unit) {
    return constant(name + ".weight", size, split(size, unit), initial_gain());
  }

  /// Makes a vector of one number, which is stored as a number if it is a `scalar`.
  at::Tensor number(const std::string& name, bool scalar, double initial) {
    at::Tensor values = constant(name, 1, {0, 1}, initial);
    if (scalar) slices_.back().shape.clear();
    return values;
  }

  at::Tensor vocabulary(const std::string& name, const std::string& other_name, WeightSlice::Role role) {
    const std::int64_t size = config_.vocab_size, width = config_.hidden_size;
    const Range rows = split(size, 1);
    at::Tensor values = make_tensor({rows.count, width}, types_.matrices, device_);
    slices_.push_back({name + ".weight",
                       {size, width},
                       rows,
                       {0, width},
                       is_shared(rows.count == size),
                       role,
                       0,
                       values,
                       other_name.empty() ? "" : other_name + ".weight"});
    return values;
  }

  std::vector<WeightSlice> take_slices() { return std::move(slices_); }

 private:
  double initial_gain() const { return 1 - config_.norm.gain_offset; }

  bool is_shared(bool whole) const { return whole && shard_.size > 1; }

  Range split(std::int64_t size, std::int64_t unit) const {
    const Range units = range_of(size / unit, shard_.size, shard_.rank);
    return {units.first * unit, units.count * unit};
  }

  void add_rows(const StoredRows& stored, const Range& rows, bool shared, const at::Tensor& values) {
    const std::int64_t inputs = config_.hidden_size;
    slices_.push_back({stored.name + ".weight",
                       {stored.total, inputs},
                       rows,
                       {0, inputs},
                       shared,
                       WeightSlice::Role::linear,
                       0,
                       values,
                       ""});
  }

  void add_bias_rows(const StoredRows& stored, const Range& rows, bool shared, const at::Tensor& values) {
    slices_.push_back({stored.name + ".bias",
                       {stored.total},
                       rows,
                       {0, 1},
                       shared,
                       WeightSlice::Role::constant,
                       0,
                       values,
                       ""});
  }

  at::Tensor constant(const std::string& name, std::int64_t size, const Range& rows, double initial) {
    at::Tensor values = make_tensor({rows.count}, types_.vectors, device_);
    slices_.push_back({name,
                       {size},
                       rows,
                       {0, 1},
                       is_shared(rows.count == size),
                       WeightSlice::Role::constant,
                       initial,
                       values,
                       ""});
    return values;
  }

  const ModelConfig& config_;
  Shard shard_;
  WeightTypes types_;
  at::Device device_;
  std::vector<WeightSlice> slices_;
};

void build_qkv(Builder& builder, const ModelConfig& config, const std::string& prefix, LayerWeights& layer) {
  const TensorNames& names = config.names;
  const std::int64_t d = config.head_size, queries = config.heads * d, keys = config.kv_heads * d;
  const std::int64_t group = config.heads / config.kv_heads;  // query heads go where their KV head goes
  const std::string fused = prefix + names.qkv;
  switch (config.qkv_storage) {
    case QkvStorage::separate:
      layer.q = builder.split_outputs(prefix + names.q, queries, group * d, config.qkv_bias);
      layer.k = builder.split_outputs(prefix + names.k, keys, d, config.qkv_bias);
      layer.v = builder.split_outputs(prefix + names.v, keys, d, config.qkv_bias);
      return;
    case QkvStorage::stacked: {
      const std::int64_t total = queries + 2 * keys;
      layer.q = builder.split_outputs(StoredRows{fused, 0, total}, queries, group * d, config.qkv_bias);
      layer.k = builder.split_outputs(StoredRows{fused, queries, total}, keys, d, config.qkv_bias);
      layer.v = builder.split_outputs(StoredRows{fused, queries + keys, total}, keys, d, config.qkv_bias);
      return;
    }
    case QkvStorage::by_head:
      layer.q = builder.split_interleaved_heads(fused, 0, config.qkv_bias);
      layer.k = builder.split_interleaved_heads(fused, 1, config.qkv_bias);
      layer.v = builder.split_interleaved_heads(fused, 2, config.qkv_bias);
  }
}

/// Adds the weights that produce q, k and v.
void build_projections(Builder& builder, const ModelConfig& config, const std::string& prefix,
                       LayerWeights& layer) {
  const TensorNames& names = config.names;
  const std::int64_t d = config.head_size, group = config.heads / config.kv_heads;
  layer.attention_norm_before = builder.norm(prefix, names.attention_norm_before);
  build_qkv(builder, config, prefix, layer);
  if (config.qk_norm == QkNorm::whole) {
    layer.q_norm = builder.split_gain(prefix + names.q_norm, config.heads * d, group * d);
    layer.k_norm = builder.split_gain(prefix + names.k_norm, config.kv_heads * d, d);
  } else if (config.qk_norm == QkNorm::per_head) {
    layer.q_norm = builder.gain(prefix + names.q_norm, d);
    layer.k_norm = builder.gain(prefix + names.k_norm, d);
  }
}

void build_mlp(Builder& builder, const ModelConfig& config, const std::string& prefix, LayerWeights& layer) {
  const TensorNames& names = config.names;
  const std::int64_t size = config.mlp_size;
  const std::string fused = prefix + names.gate_up;
  const bool separate = names.gate_up.empty();
  if (config.gated && separate)
    layer.gate = builder.split_outputs(prefix + names.gate, size, 1, config.mlp_bias);
  if (config.gated && !separate)
    layer.gate = builder.split_outputs(StoredRows{fused, 0, 2 * size}, size, 1, config.mlp_bias);
  layer.up = separate ? builder.split_outputs(prefix + names.up, size, 1, config.mlp_bias)
                      : builder.split_outputs(StoredRows{fused, size, 2 * size}, size, 1, config.mlp_bias);
  layer.down = builder.split_inputs(prefix + names.down, size, 1, config.mlp_bias);
  if (config.activation != Activation::xielu) return;
  const std::string act = prefix + "mlp.act_fn.";
  layer.xielu.alpha_p = builder.number(act + "alpha_p", false, std::log(std::expm1(0.8)));
  layer.xielu.alpha_n = builder.number(act + "alpha_n", false, std::log(std::expm1(0.3)));
  layer.xielu.beta = builder.number(act + "beta", true, 0.5);
  layer.xielu.eps = builder.number(act + "eps", true, -1e-6);
}

void build_rest(Builder& builder, const ModelConfig& config, const std::string& prefix, LayerWeights& layer) {
  const TensorNames& names = config.names;
  const std::int64_t d = config.head_size, group = config.heads / config.kv_heads;
  layer.attention_norm_after = builder.norm(prefix, names.attention_norm_after);
  layer.o = builder.split_inputs(prefix + names.o, config.heads * d, group * d, config.o_bias);
  layer.mlp_norm_before = builder.norm(prefix, names.mlp_norm_before);
  layer.mlp_norm_after = builder.norm(prefix, names.mlp_norm_after);
  build_mlp(builder, config, prefix, layer);
}

}  // namespace

Weights allocate_weights(const ModelConfig& config, Extent extent, Shard shard, at::ScalarType dtype,
                         at::Device device) {
  return allocate_weights(config, extent, shard, WeightTypes{dtype, dtype}, device);
}

Weights allocate_weights(const ModelConfig& config, Extent extent, Shard shard, WeightTypes types,
                         at::Device device) {
  if (config.kv_heads % shard.size != 0)
    throw InputError("", "run.tensor_parallel", std::to_string(shard.size),
                     "does not divide the " + std::to_string(config.kv_heads) + " KV heads of the model",
                     "choose a divisor of them");
  HS_ASSERT(extent.layers <= config.layers && (!extent.logits || extent.layers == config.layers));
  Builder builder(config, shard, types, device);
  Weights weights;
  const TensorNames& names = config.names;
  weights.embedding = builder.vocabulary(names.embedding, "", WeightSlice::Role::embedding);
  weights.layers.resize(static_cast<std::size_t>(extent.layers));
  for (std::int64_t i = 0; i < extent.layers; ++i) {
    const std::string name = names.layers + std::to_string(i) + ".";
    LayerWeights& layer = weights.layers[static_cast<std::size_t>(i)];
    build_projections(builder, config, name, layer);
    if (extent.logits || i + 1 < extent.layers) build_rest(builder, config, name, layer);
  }
  if (extent.logits) {
    weights.final_norm = builder.norm("", names.final_norm);
    weights.lm_head = config.tie_word_embeddings
                          ? weights.embedding
                          : builder.vocabulary(names.lm_head, names.other_lm_head, WeightSlice::Role::linear);
  }
  weights.slices = builder.take_slices();
  return weights;
}

double weight_bytes(const ModelConfig& config, Extent extent, std::int64_t tensor_parallel, Dtype dtype) {
  const at::ScalarType type = scalar_type(dtype);
  const Weights weights = allocate_weights(config, extent, {0, tensor_parallel}, type, at::kMeta);
  double values = 0;
  for (const WeightSlice& slice : weights.slices) values += static_cast<double>(slice.values.numel());
  return values * static_cast<double>(c10::elementSize(type));
}

}  // namespace headspan
