#include "model/weights/weights.h"

#include <cstdlib>
#include <new>

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <sys/mman.h>

#include "base/error.h"

namespace headspan {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20;

/// Allocates a tensor. Large ones on the CPU get huge pages if the system has them, because touching fresh
/// memory page by page takes longer than reading a checkpoint from the page cache.
at::Tensor make_tensor(at::IntArrayRef shape, at::ScalarType dtype, at::Device device) {
  const auto bytes = static_cast<std::size_t>(c10::multiply_integers(shape)) * c10::elementSize(dtype);
  if (!device.is_cpu() || bytes < 2 * kHugePage) return at::empty(shape, at::dtype(dtype).device(device));
  const std::size_t padded = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* memory = std::aligned_alloc(kHugePage, padded);
  if (memory == nullptr) throw std::bad_alloc();
  madvise(memory, padded, MADV_HUGEPAGE);  // only a hint: if it fails, everything is slower
  return at::from_blob(
      memory, shape, [](void* p) { std::free(p); }, at::dtype(dtype));
}

/// Makes the tensors of one rank and records the slice that each holds.
class Builder {
 public:
  Builder(const ModelConfig& config, Shard shard, WeightTypes types, at::Device device)
      : config_(config), shard_(shard), types_(types), device_(device) {}

  /// Splits the outputs over the ranks in units of `unit` (a head): rows of the weight and of the bias.
  Linear split_outputs(const std::string& name, std::int64_t outputs, std::int64_t unit, bool bias) {
    const Range rows = split(outputs, unit);
    Linear linear;
    linear.weight = matrix(name + ".weight", outputs, rows, config_.hidden_size, whole(config_.hidden_size));
    if (bias) linear.bias = vector(name + ".bias", outputs, rows, WeightSlice::Role::bias);
    return linear;
  }

  /// Splits the inputs over the ranks: columns of the weight; the bias is on every rank.
  Linear split_inputs(const std::string& name, std::int64_t inputs, std::int64_t unit, bool bias) {
    const std::int64_t outputs = config_.hidden_size;
    Linear linear;
    linear.weight = matrix(name + ".weight", outputs, whole(outputs), inputs, split(inputs, unit));
    if (bias) linear.bias = vector(name + ".bias", outputs, whole(outputs), WeightSlice::Role::bias);
    return linear;
  }

  at::Tensor gain(const std::string& name, std::int64_t size) {
    return vector(name + ".weight", size, whole(size), WeightSlice::Role::gain);
  }

  at::Tensor split_gain(const std::string& name, std::int64_t size, std::int64_t unit) {
    return vector(name + ".weight", size, split(size, unit), WeightSlice::Role::gain);
  }

  at::Tensor vocabulary(const std::string& name, WeightSlice::Role role) {
    const std::int64_t size = config_.vocab_size;
    return matrix(name + ".weight", size, split(size, 1), config_.hidden_size, whole(config_.hidden_size),
                  role);
  }

  std::vector<WeightSlice> take_slices() { return std::move(slices_); }

 private:
  static Range whole(std::int64_t size) { return {0, size}; }

  Range split(std::int64_t size, std::int64_t unit) const {
    const Range units = range_of(size / unit, shard_.size, shard_.rank);
    return {units.first * unit, units.count * unit};
  }

  at::Tensor matrix(const std::string& name, std::int64_t outputs, Range rows, std::int64_t inputs,
                    Range columns, WeightSlice::Role role = WeightSlice::Role::linear) {
    at::Tensor values = make_tensor({rows.count, columns.count}, types_.matrices, device_);
    const bool shared = shard_.size > 1 && rows.count == outputs && columns.count == inputs;
    slices_.push_back({name, {outputs, inputs}, rows, columns, shared, role, values});
    return values;
  }

  at::Tensor vector(const std::string& name, std::int64_t size, Range rows, WeightSlice::Role role) {
    at::Tensor values = make_tensor({rows.count}, types_.vectors, device_);
    slices_.push_back({name, {size}, rows, {0, 1}, rows.count == size && shard_.size > 1, role, values});
    return values;
  }

  const ModelConfig& config_;
  Shard shard_;
  WeightTypes types_;
  at::Device device_;
  std::vector<WeightSlice> slices_;
};

/// Adds the weights that produce q, k and v.
void build_projections(Builder& builder, const ModelConfig& config, const std::string& name,
                       LayerWeights& layer) {
  const std::string attention = name + "self_attn.";
  const std::int64_t d = config.head_size, queries = config.heads * d, keys = config.kv_heads * d;
  const std::int64_t group = config.heads / config.kv_heads;  // query heads go where their KV head goes
  if (!config.norm_after) layer.attention_norm = builder.gain(name + "input_layernorm", config.hidden_size);
  layer.q = builder.split_outputs(attention + "q_proj", queries, group * d, config.attention_bias);
  layer.k = builder.split_outputs(attention + "k_proj", keys, d, config.attention_bias);
  layer.v = builder.split_outputs(attention + "v_proj", keys, d, config.attention_bias);
  if (config.qk_norm == QkNorm::whole) {
    layer.q_norm = builder.split_gain(attention + "q_norm", queries, group * d);
    layer.k_norm = builder.split_gain(attention + "k_norm", keys, d);
  } else if (config.qk_norm == QkNorm::per_head) {
    layer.q_norm = builder.gain(attention + "q_norm", d);
    layer.k_norm = builder.gain(attention + "k_norm", d);
  }
}

void build_rest(Builder& builder, const ModelConfig& config, const std::string& name, LayerWeights& layer) {
  const std::int64_t d = config.head_size, group = config.heads / config.kv_heads;
  if (config.norm_after)
    layer.attention_norm = builder.gain(name + "post_attention_layernorm", config.hidden_size);
  layer.o =
      builder.split_inputs(name + "self_attn.o_proj", config.heads * d, group * d, config.attention_bias);
  layer.mlp_norm =
      builder.gain(name + (config.norm_after ? "post_feedforward_layernorm" : "post_attention_layernorm"),
                   config.hidden_size);
  layer.gate = builder.split_outputs(name + "mlp.gate_proj", config.mlp_size, 1, config.mlp_bias);
  layer.up = builder.split_outputs(name + "mlp.up_proj", config.mlp_size, 1, config.mlp_bias);
  layer.down = builder.split_inputs(name + "mlp.down_proj", config.mlp_size, 1, config.mlp_bias);
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
  weights.embedding = builder.vocabulary("model.embed_tokens", WeightSlice::Role::embedding);
  weights.layers.resize(static_cast<std::size_t>(extent.layers));
  for (std::int64_t i = 0; i < extent.layers; ++i) {
    const std::string name = "model.layers." + std::to_string(i) + ".";
    LayerWeights& layer = weights.layers[static_cast<std::size_t>(i)];
    build_projections(builder, config, name, layer);
    if (extent.logits || i + 1 < extent.layers) build_rest(builder, config, name, layer);
  }
  if (extent.logits) {
    weights.final_norm = builder.gain("model.norm", config.hidden_size);
    weights.lm_head = config.tie_word_embeddings ? weights.embedding
                                                 : builder.vocabulary("lm_head", WeightSlice::Role::linear);
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
