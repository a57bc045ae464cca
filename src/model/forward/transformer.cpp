#include "model/forward/transformer.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>

#include "dist/comm/agreement.h"
#include "model/cache/kv_cache.h"
#include "model/core/tensor_comm.h"
#include "model/forward/activation.h"
#include "model/forward/attention.h"
#include "model/forward/norm.h"
#include "model/weights/weight_initializer.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

constexpr std::int64_t kChunkNumbers = 1 << 16;  // the time to sum fewer over the ranks is mostly latency

Shard shard_of(const DeviceComm& tensor_parallel) { return {tensor_parallel.rank(), tensor_parallel.size()}; }

/// Limits values to [-bound, bound]. LibTorch 1.13 cannot do that in float16 on CPUs.
at::Tensor clipped(const at::Tensor& values, double bound) {
  if (values.scalar_type() != at::kHalf) return values.clamp(-bound, bound);
  return values.to(at::kFloat).clamp_(-bound, bound).to(at::kHalf);
}

}  // namespace

Transformer::Transformer(const ModelConfig& config, const TransformerOptions& options,
                         const DeviceComm& tensor_parallel)
    : config_(config),
      dtype_(scalar_type(options.dtype)),
      tensor_parallel_(&tensor_parallel),
      device_(options.device) {}

Transformer Transformer::load(const ModelConfig& config, const Checkpoint& checkpoint,
                              const TransformerOptions& options, const DeviceComm& tensor_parallel,
                              const Comm& data_parallel) {
  const c10::InferenceMode inference;
  Transformer model(config, options, tensor_parallel);
  agree(data_parallel, [&] {  // otherwise other tensor-parallel groups would go on and wait for this one
    agree(tensor_parallel.host(), [&] {
      const WeightTypes types{scalar_type(weight_dtype(options.dtype, config, &checkpoint)), model.dtype_};
      model.weights_ =
          allocate_weights(config, options.extent, shard_of(tensor_parallel), types, options.device);
    });
  });
  const Comm& row = tensor_parallel.host();
  load_weights(checkpoint, config, model.weights_, row, data_parallel, weight_reading(row, data_parallel));
  return model;
}

Transformer Transformer::random(const ModelConfig& config, std::uint64_t seed,
                                const TransformerOptions& options, const DeviceComm& tensor_parallel) {
  const c10::InferenceMode inference;
  Transformer model(config, options, tensor_parallel);
  agree(tensor_parallel.host(), [&] {
    model.weights_ =
        allocate_weights(config, options.extent, shard_of(tensor_parallel), model.dtype_, options.device);
    initialize_weights(config, seed, model.weights_);
  });
  return model;
}

Range Transformer::heads(Stream stream) const {
  const Range kv = range_of(config_.kv_heads, tensor_parallel_->size(), tensor_parallel_->rank());
  const std::int64_t group = config_.heads_of(stream) / config_.kv_heads;
  return {kv.first * group, kv.count * group};
}

template <class T>
void Transformer::capture(const PackedBatch& batch, CapturePoint point, const std::vector<Stream>& streams,
                          const CaptureSink<T>& sink, const MeanSquareSink& mean_squares) const {
  const auto on_host = [&](std::int64_t layer, Stream stream, const at::Tensor& values) {
    const at::Tensor typed = values.to(at::kCPU).to(at::CppTypeToScalarType<T>::value).contiguous();
    sink(layer, stream, typed.data_ptr<T>());
  };
  capture_tensors(batch, point, streams, on_host, mean_squares);
}

void Transformer::capture_tensors(const PackedBatch& batch, CapturePoint point,
                                  const std::vector<Stream>& streams, const TensorSink& sink,
                                  const MeanSquareSink& mean_squares) const {
  const Capture capture{point, &streams, sink, &mean_squares};
  run(batch, static_cast<std::int64_t>(weights_.layers.size()), &capture, nullptr);
}

template void Transformer::capture<double>(const PackedBatch&, CapturePoint, const std::vector<Stream>&,
                                           const CaptureSink<double>&, const MeanSquareSink&) const;
template void Transformer::capture<float>(const PackedBatch&, CapturePoint, const std::vector<Stream>&,
                                          const CaptureSink<float>&, const MeanSquareSink&) const;

at::Tensor Transformer::logits(const PackedBatch& batch) const {
  const c10::InferenceMode inference;
  return logits(norm(run(batch, config_.layers, nullptr, nullptr), weights_.final_norm));
}

at::Tensor Transformer::hidden(const PackedBatch& batch, KvCache& cache) const {
  HS_ASSERT(weights_.lm_head.defined());
  const c10::InferenceMode inference;
  cache.begin(batch.tokens, batch.lengths);
  const at::Tensor x = run(batch, config_.layers, nullptr, &cache);
  cache.advance(batch.lengths);
  return norm(x, weights_.final_norm);
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const {
  HS_ASSERT(weights_.lm_head.defined());
  const c10::InferenceMode inference;
  at::Tensor logits = join_columns(*tensor_parallel_, apply({weights_.lm_head, {}}, hidden));
  const double cap = config_.logit_softcap;
  return cap > 0 ? logits.div_(cap).tanh_().mul_(cap) : logits;
}

at::Tensor Transformer::embed(const std::vector<std::int64_t>& tokens) const {
  const Range rows = range_of(config_.vocab_size, tensor_parallel_->size(), tensor_parallel_->rank());
  at::Tensor ids = at::tensor(tokens, at::kLong).to(device_);
  if (tensor_parallel_->size() == 1) return weights_.embedding.index_select(0, ids).to(dtype_);
  ids = ids - rows.first;
  const at::Tensor elsewhere = ids.lt(0).logical_or(ids.ge(rows.count));
  at::Tensor x = rows.count == 0
                     ? at::zeros({ids.size(0), config_.hidden_size}, at::dtype(dtype_).device(device_))
                     : weights_.embedding.index_select(0, ids.masked_fill(elsewhere, 0)).to(dtype_);
  x.masked_fill_(elsewhere.unsqueeze(1), 0);
  sum_over(*tensor_parallel_, x);
  return x;
}

/// Returns the residual stream [tokens, hidden] after the last of `layers`; undefined if it is not needed.
at::Tensor Transformer::run(const PackedBatch& batch, std::int64_t layers, const Capture* capture,
                            KvCache* cache) const {
  const c10::InferenceMode inference;
  const auto count = static_cast<std::int64_t>(batch.tokens.size());
  HS_ASSERT(std::accumulate(batch.lengths.begin(), batch.lengths.end(), std::int64_t{0}) == count);
  if (count == 0) return at::empty({0, config_.hidden_size}, at::dtype(dtype_).device(device_));
  const RopeTables tables = rope_tables(batch, cache);
  at::Tensor x = embed(batch.tokens);
  if (config_.embedding_scale != 1) x.mul_(at::scalar_tensor(config_.embedding_scale, x.options()));
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    if (capture != nullptr && !*capture->mean_squares && layer + 1 == layers) {
      capture_only(layer, x, batch, tables, *capture);
      return {};
    }
    x = run_layer(layer, x, batch, tables, capture, cache);
  }
  return x;
}

Transformer::RopeTables Transformer::rope_tables(const PackedBatch& batch, const KvCache* cache) const {
  const std::vector<std::int64_t> starts =
      cache != nullptr ? cache->lengths() : std::vector<std::int64_t>(batch.lengths.size(), 0);
  const auto table = [&](const RopeRule& rule) {
    const RopeTable host = make_rope_table(rule, config_.rotated_size(), {starts, batch.lengths}, dtype_);
    return RopeTable{host.cos.to(device_), host.sin.to(device_)};
  };
  return {table(config_.rope), config_.window_rope ? table(*config_.window_rope) : RopeTable()};
}

/// Computes nothing but the captured streams of the last layer.
void Transformer::capture_only(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                               const RopeTables& tables, const Capture& capture) const {
  const at::Tensor input = norm_if(config_.names.attention_norm_before, x,
                                   weights_.layers[static_cast<std::size_t>(layer)].attention_norm_before);
  if (capture.has(Stream::z))
    attention(layer, input, batch, tables, &capture, nullptr);
  else
    for (const Stream stream : *capture.streams) project(layer, stream, input, tables, &capture);
}

/// Returns the chunks of rows that go through the rest of a layer after its attention. If ranks share the
/// layer and chunks are large enough there are two: one is computed while the other is summed over the ranks.
std::vector<Range> Transformer::row_chunks(std::int64_t rows, const Capture* capture) const {
  const std::int64_t half = rows / 2;
  const bool measured = capture != nullptr && *capture->mean_squares;  // for all rows at once
  if (tensor_parallel_->size() == 1 || measured || half * config_.hidden_size < kChunkNumbers)
    return {{0, rows}};
  return {{0, half}, {half, rows - half}};
}

at::Tensor Transformer::run_layer(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                                  const RopeTables& tables, const Capture* capture, KvCache* cache) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const TensorNames& names = config_.names;
  const at::Tensor mixed =
      attention(layer, norm_if(names.attention_norm_before, x, weights.attention_norm_before), batch, tables,
                capture, cache);
  const std::vector<Range> chunks = row_chunks(x.size(0), capture);
  std::vector<PendingSum> attended, outputs;
  for (const Range& chunk : chunks)
    attended.push_back(begin_sum(weights.o, mixed.narrow(0, chunk.first, chunk.count)));
  at::Tensor sum = at::empty_like(x);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    at::Tensor rows = sum.narrow(0, chunks[i].first, chunks[i].count);
    const at::Tensor before = x.narrow(0, chunks[i].first, chunks[i].count);
    const at::Tensor block = finish_sum(weights.o, attended[i]);
    at::add_out(rows, before, norm_if(names.attention_norm_after, block, weights.attention_norm_after));
    report_mean_squares(layer, config_.normalises_attention_output() ? block : rows, capture);
    const at::Tensor& read = config_.parallel_residual ? before : rows;
    outputs.push_back(
        begin_sum(weights.down, mlp(weights, norm_if(names.mlp_norm_before, read, weights.mlp_norm_before))));
  }
  for (std::size_t i = 0; i < chunks.size(); ++i)
    sum.narrow(0, chunks[i].first, chunks[i].count)
        .add_(norm_if(names.mlp_norm_after, finish_sum(weights.down, outputs[i]), weights.mlp_norm_after));
  return sum;
}

/// Returns one stream in the form that attention takes, and passes it to the sink at the capture point.
at::Tensor Transformer::project(std::int64_t layer, Stream stream, const at::Tensor& x,
                                const RopeTables& tables, const Capture* capture) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const bool captured = capture != nullptr && capture->has(stream);
  const auto emit = [&](CapturePoint point, const at::Tensor& values) {
    if (captured && (capture->point == point || stream == Stream::v)) capture->sink(layer, stream, values);
  };
  const Linear& linear = stream == Stream::q ? weights.q : stream == Stream::k ? weights.k : weights.v;
  at::Tensor values = apply(linear, x).view({x.size(0), heads(stream).count, config_.head_size});
  if (config_.clip_qkv) values = clipped(values, *config_.clip_qkv);
  emit(CapturePoint::proj, values);
  if (stream == Stream::v) return values;
  values = norm_heads(values, stream == Stream::q ? weights.q_norm : weights.k_norm);
  emit(CapturePoint::normed, values);
  if (config_.rotates_in(layer))
    values = rotate(values, config_.has_window_rope(layer) ? tables.window : tables.plain);
  emit(CapturePoint::roped, values);
  return values;
}

/// Returns the attention of the heads of this rank: [tokens, heads * d].
at::Tensor Transformer::attention(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                                  const RopeTables& tables, const Capture* capture, KvCache* cache) const {
  at::Tensor q = project(layer, Stream::q, x, tables, capture);
  if (config_.query_scale != 1) q = q * config_.query_scale;
  const at::Tensor k = project(layer, Stream::k, x, tables, capture);
  const at::Tensor v = project(layer, Stream::v, x, tables, capture);
  const at::Tensor mixed = cache != nullptr
                               ? cache->attend(layer, q, k, v, batch.lengths)
                               : causal_attention(q, k, v, batch.lengths, config_.attention_in(layer));
  if (capture != nullptr && capture->has(Stream::z)) capture->sink(layer, Stream::z, mixed);
  return mixed.view({x.size(0), -1});
}

void Transformer::report_mean_squares(std::int64_t layer, const at::Tensor& x, const Capture* capture) const {
  if (capture == nullptr || !*capture->mean_squares) return;
  at::Tensor wide = x.to(at::kDouble);
  if (config_.norm.kind == NormKind::layer) wide = wide - wide.mean(1, true);
  const at::Tensor squares = wide.square().mean(1).add_(config_.norm.eps).to(at::kCPU).contiguous();
  (*capture->mean_squares)(layer, {squares.data_ptr<double>(), squares.data_ptr<double>() + squares.numel()});
}

std::vector<double> Transformer::output_metric(std::int64_t layer) const {
  const c10::InferenceMode inference;
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  HS_ASSERT(weights.o.weight.defined());
  at::Tensor w = weights.o.weight.to(at::kDouble);  // [hidden, heads d]
  if (weights.attention_norm_after.gain.defined())
    w = w * whole_gain(weights.attention_norm_after.gain).to(at::kDouble).unsqueeze(1);
  w = w.view({w.size(0), -1, config_.head_size}).permute({1, 0, 2});
  const at::Tensor metric = at::bmm(w.transpose(1, 2), w).div_(config_.hidden_size).to(at::kCPU).contiguous();
  return {metric.data_ptr<double>(), metric.data_ptr<double>() + metric.numel()};
}

/// Returns the input of the down projection.
at::Tensor Transformer::mlp(const LayerWeights& layer, const at::Tensor& x) const {
  at::Tensor values = apply(config_.gated ? layer.gate : layer.up, x);
  if (config_.gated)
    activate_and_multiply(config_.activation, layer.xielu, values, apply(layer.up, x));
  else
    activate(config_.activation, layer.xielu, values);
  return values;
}

/// Starts to sum the output of a layer whose inputs are split over the ranks; finish_sum adds the bias, once.
PendingSum Transformer::begin_sum(const Linear& linear, const at::Tensor& x) const {
  return {*tensor_parallel_, apply(tensor_parallel_->size() == 1 ? linear : Linear{linear.weight, {}}, x)};
}

at::Tensor Transformer::finish_sum(const Linear& linear, PendingSum& pending) const {
  at::Tensor sum = pending.finish();
  return tensor_parallel_->size() > 1 && linear.bias.defined() ? sum.add_(linear.bias) : sum;
}

at::Tensor Transformer::norm(const at::Tensor& x, const NormWeights& weights) const {
  if (config_.norm.kind == NormKind::layer)
    return layer_norm(x, weights.gain, weights.bias, config_.norm.eps);
  return rms_norm(x, whole_gain(weights.gain), config_.norm.eps, config_.norm.round_once);
}

/// Returns what a norm multiplies by.
at::Tensor Transformer::whole_gain(const at::Tensor& gain) const {
  if (config_.norm.gain_offset == 0 || !gain.defined()) return gain;
  return gain.to(dtype_ == at::kDouble ? at::kDouble : at::kFloat) + config_.norm.gain_offset;
}

/// Normalises x if the norm has a name, that is, if the model has it.
at::Tensor Transformer::norm_if(const std::string& name, const at::Tensor& x,
                                const NormWeights& weights) const {
  return name.empty() ? x : norm(x, weights);
}

/// Normalises queries or keys as the model does. x: [tokens, heads of this rank, head_size].
at::Tensor Transformer::norm_heads(const at::Tensor& x, const at::Tensor& gain) const {
  if (config_.qk_norm == QkNorm::none) return x;
  if (config_.qk_norm == QkNorm::per_head)
    return rms_norm(x, whole_gain(gain), config_.norm.eps, config_.norm.round_once);
  const at::Tensor flat = x.view({x.size(0), -1});
  return rms_norm(flat, whole_gain(gain), config_.norm.eps, config_.norm.round_once, tensor_parallel_)
      .view(x.sizes());
}

}  // namespace headspan
