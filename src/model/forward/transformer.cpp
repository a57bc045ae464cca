#include "model/forward/transformer.h"

#include <algorithm>
#include <numeric>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>

#include "dist/comm/agreement.h"
#include "model/cache/kv_cache.h"
#include "model/core/tensor_comm.h"
#include "model/forward/attention.h"
#include "model/forward/norm.h"
#include "model/kernels/row_kernels.h"
#include "model/weights/weight_initializer.h"
#include "model/weights/weight_loader.h"

namespace headspan {
namespace {

constexpr std::int64_t kChunkNumbers = 1 << 16;  // the time to sum fewer over the ranks is mostly latency

/// gate = silu(gate) * up.
void silu_and_multiply(at::Tensor& gate, const at::Tensor& up) {
  if (!gate.is_cpu() || gate.scalar_type() != at::kFloat) {
    const bool lacks_silu = gate.is_cpu() && gate.scalar_type() == at::kHalf;  // in some versions
    gate = lacks_silu ? at::silu(gate.to(at::kFloat)).to(at::kHalf) : at::silu_(gate);
    gate.mul_(up);
    return;
  }
  float* gates = gate.data_ptr<float>();
  const float* ups = up.data_ptr<float>();
  at::parallel_for(0, gate.numel(), 1 << 15, [&](std::int64_t begin, std::int64_t end) {
    silu_times(gates + begin, ups + begin, end - begin);
  });
}

Shard shard_of(const DeviceComm& tensor_parallel) { return {tensor_parallel.rank(), tensor_parallel.size()}; }

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
  load_weights(checkpoint, config, model.weights_, tensor_parallel.host(), data_parallel);
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
  const std::int64_t group = stream == Stream::q ? config_.heads / config_.kv_heads : 1;
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
  HS_ASSERT(weights_.final_norm.defined());
  const c10::InferenceMode inference;
  const at::Tensor x = run(batch, config_.layers, nullptr, &cache);
  cache.advance(batch.lengths);
  return norm(x, weights_.final_norm);
}

at::Tensor Transformer::logits(const at::Tensor& hidden) const {
  HS_ASSERT(weights_.lm_head.defined());
  const c10::InferenceMode inference;
  return join_columns(*tensor_parallel_, apply({weights_.lm_head, {}}, hidden));
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
  const std::vector<std::int64_t> starts =
      cache != nullptr ? cache->lengths() : std::vector<std::int64_t>(batch.lengths.size(), 0);
  const RopeTable host = make_rope_table(config_, starts, batch.lengths, dtype_);
  const RopeTable table{host.cos.to(device_), host.sin.to(device_)};
  at::Tensor x = embed(batch.tokens);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    if (capture != nullptr && !*capture->mean_squares && layer + 1 == layers) {
      project_only(layer, x, table, *capture);
      return {};
    }
    x = run_layer(layer, x, batch, table, capture, cache);
  }
  return x;
}

/// Computes nothing but the captured streams of the last layer.
void Transformer::project_only(std::int64_t layer, const at::Tensor& x, const RopeTable& table,
                               const Capture& capture) const {
  const at::Tensor& gain = weights_.layers[static_cast<std::size_t>(layer)].attention_norm;
  const at::Tensor input = config_.norm_after ? x : norm(x, gain);
  for (const Stream stream : *capture.streams) project(layer, stream, input, table, &capture);
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
                                  const RopeTable& table, const Capture* capture, KvCache* cache) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const auto before = [&](const at::Tensor& in, const at::Tensor& gain) {
    return config_.norm_after ? in : norm(in, gain);
  };
  const auto after = [&](const at::Tensor& block, const at::Tensor& gain) {
    return config_.norm_after ? norm(block, gain) : block;
  };
  const at::Tensor mixed = attention(layer, before(x, weights.attention_norm), batch, table, capture, cache);
  const std::vector<Range> chunks = row_chunks(x.size(0), capture);
  std::vector<PendingSum> attended, outputs;
  for (const Range& chunk : chunks)
    attended.push_back(begin_sum(weights.o, mixed.narrow(0, chunk.first, chunk.count)));
  at::Tensor sum = at::empty_like(x);
  for (std::size_t i = 0; i < chunks.size(); ++i) {
    at::Tensor rows = sum.narrow(0, chunks[i].first, chunks[i].count);
    const at::Tensor block = finish_sum(weights.o, attended[i]);
    at::add_out(rows, x.narrow(0, chunks[i].first, chunks[i].count), after(block, weights.attention_norm));
    report_mean_squares(layer, config_.norm_after ? block : rows, capture);
    outputs.push_back(begin_sum(weights.down, mlp(weights, before(rows, weights.mlp_norm))));
  }
  for (std::size_t i = 0; i < chunks.size(); ++i)
    sum.narrow(0, chunks[i].first, chunks[i].count)
        .add_(after(finish_sum(weights.down, outputs[i]), weights.mlp_norm));
  return sum;
}

/// Returns one stream in the form that attention takes, and passes it to the sink at the capture point.
at::Tensor Transformer::project(std::int64_t layer, Stream stream, const at::Tensor& x,
                                const RopeTable& table, const Capture* capture) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const bool captured =
      capture != nullptr && std::count(capture->streams->begin(), capture->streams->end(), stream) > 0;
  const auto emit = [&](CapturePoint point, const at::Tensor& values) {
    if (captured && (capture->point == point || stream == Stream::v)) capture->sink(layer, stream, values);
  };
  const Linear& linear = stream == Stream::q ? weights.q : stream == Stream::k ? weights.k : weights.v;
  at::Tensor values = apply(linear, x).view({x.size(0), heads(stream).count, config_.head_size});
  emit(CapturePoint::proj, values);
  if (stream == Stream::v) return values;
  values = norm_heads(values, stream == Stream::q ? weights.q_norm : weights.k_norm);
  emit(CapturePoint::normed, values);
  values = rotate(values, table);
  emit(CapturePoint::roped, values);
  return values;
}

/// Returns the attention of the heads of this rank: [tokens, heads * d].
at::Tensor Transformer::attention(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                                  const RopeTable& table, const Capture* capture, KvCache* cache) const {
  const at::Tensor q = project(layer, Stream::q, x, table, capture);
  const at::Tensor k = project(layer, Stream::k, x, table, capture);
  const at::Tensor v = project(layer, Stream::v, x, table, capture);
  const at::Tensor mixed = cache != nullptr ? cache->attend(layer, q, k, v, batch.lengths)
                                            : causal_attention(q, k, v, batch.lengths);
  return mixed.view({x.size(0), -1});
}

void Transformer::report_mean_squares(std::int64_t layer, const at::Tensor& x, const Capture* capture) const {
  if (capture == nullptr || !*capture->mean_squares) return;
  const at::Tensor squares =
      x.to(at::kDouble).square().mean(1).add_(config_.norm_eps).to(at::kCPU).contiguous();
  (*capture->mean_squares)(layer, {squares.data_ptr<double>(), squares.data_ptr<double>() + squares.numel()});
}

std::vector<double> Transformer::output_metric(std::int64_t layer) const {
  const c10::InferenceMode inference;
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  HS_ASSERT(weights.o.weight.defined());
  at::Tensor w = weights.o.weight.to(at::kDouble);  // [hidden, heads d]
  if (config_.norm_after) w = w * weights.attention_norm.to(at::kDouble).unsqueeze(1);
  w = w.view({w.size(0), -1, config_.head_size}).permute({1, 0, 2});
  const at::Tensor metric = at::bmm(w.transpose(1, 2), w).div_(config_.hidden_size).to(at::kCPU).contiguous();
  return {metric.data_ptr<double>(), metric.data_ptr<double>() + metric.numel()};
}

/// Returns the input of the down projection.
at::Tensor Transformer::mlp(const LayerWeights& layer, const at::Tensor& x) const {
  at::Tensor gate = apply(layer.gate, x);
  silu_and_multiply(gate, apply(layer.up, x));
  return gate;
}

/// Starts to sum the output of a layer whose inputs are split over the ranks; finish_sum adds the bias, once.
PendingSum Transformer::begin_sum(const Linear& linear, const at::Tensor& x) const {
  return {*tensor_parallel_, apply(tensor_parallel_->size() == 1 ? linear : Linear{linear.weight, {}}, x)};
}

at::Tensor Transformer::finish_sum(const Linear& linear, PendingSum& pending) const {
  at::Tensor sum = pending.finish();
  return tensor_parallel_->size() > 1 && linear.bias.defined() ? sum.add_(linear.bias) : sum;
}

at::Tensor Transformer::norm(const at::Tensor& x, const at::Tensor& gain) const {
  return rms_norm(x, gain, config_.norm_eps, config_.round_once);
}

/// Normalises queries or keys as the model does. x: [tokens, heads of this rank, head_size].
at::Tensor Transformer::norm_heads(const at::Tensor& x, const at::Tensor& gain) const {
  if (config_.qk_norm == QkNorm::none) return x;
  if (config_.qk_norm == QkNorm::per_head) return norm(x, gain);
  const at::Tensor flat = x.view({x.size(0), -1});
  return rms_norm(flat, gain, config_.norm_eps, config_.round_once, tensor_parallel_).view(x.sizes());
}

}  // namespace headspan
