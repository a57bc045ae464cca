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

constexpr std::int64_t kPieceNumbers = 1 << 16;  // of a sum over the ranks, below which latency is most of it

/// gate = silu(gate) * up.
void silu_and_multiply(at::Tensor& gate, const at::Tensor& up) {
  if (!gate.is_cpu() || gate.scalar_type() != at::kFloat) {
    const bool lacks_silu = gate.is_cpu() && gate.scalar_type() == at::kHalf;  // in some LibTorch
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
  agree(data_parallel, [&] {  // else the other rows would go on and wait for this one
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

/// The residual stream [tokens, hidden] behind the last of `layers`; undefined where it is not needed.
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

/// Of the last layer only the streams that are asked for.
void Transformer::project_only(std::int64_t layer, const at::Tensor& x, const RopeTable& table,
                               const Capture& capture) const {
  const at::Tensor& gain = weights_.layers[static_cast<std::size_t>(layer)].attention_norm;
  const at::Tensor input = config_.norm_after ? x : norm(x, gain);
  for (const Stream stream : *capture.streams) project(layer, stream, input, table, &capture);
}

/// Which rows go through a layer behind its attention one after another. Where ranks share the layer there
/// are two pieces, if they are large enough for it: the sum over the ranks of one goes on while the other is
/// computed.
std::vector<Range> Transformer::row_pieces(std::int64_t rows, const Capture* capture) const {
  const std::int64_t half = rows / 2;
  const bool measured = capture != nullptr && *capture->mean_squares;  // of all rows at once
  if (tensor_parallel_->size() == 1 || measured || half * config_.hidden_size < kPieceNumbers)
    return {{0, rows}};
  return {{0, half}, {half, rows - half}};
}

at::Tensor Transformer::run_layer(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                                  const RopeTable& table, const Capture* capture, KvCache* cache) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const auto before = [&](const at::Tensor& in, const at::Tensor& gain) {
    return config_.norm_after ? in : norm(in, gain);
  };
  const auto behind = [&](const at::Tensor& block, const at::Tensor& gain) {
    return config_.norm_after ? norm(block, gain) : block;
  };
  const at::Tensor mixed = attention(layer, before(x, weights.attention_norm), batch, table, capture, cache);
  const std::vector<Range> pieces = row_pieces(x.size(0), capture);
  std::vector<BegunSum> attended, outputs;
  for (const Range& rows : pieces)
    attended.push_back(begin_parts(weights.o, mixed.narrow(0, rows.first, rows.count)));
  const at::Tensor sum = at::empty_like(x);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    at::Tensor own = sum.narrow(0, pieces[i].first, pieces[i].count);
    const at::Tensor block = finish_parts(weights.o, attended[i]);
    at::add_out(own, x.narrow(0, pieces[i].first, pieces[i].count), behind(block, weights.attention_norm));
    measure(layer, config_.norm_after ? block : own, capture);
    outputs.push_back(begin_parts(weights.down, mlp(weights, before(own, weights.mlp_norm))));
  }
  for (std::size_t i = 0; i < pieces.size(); ++i)
    sum.narrow(0, pieces[i].first, pieces[i].count)
        .add_(behind(finish_parts(weights.down, outputs[i]), weights.mlp_norm));
  return sum;
}

/// One stream as attention takes it, handed out on the way at the point that is asked for.
at::Tensor Transformer::project(std::int64_t layer, Stream stream, const at::Tensor& x,
                                const RopeTable& table, const Capture* capture) const {
  const LayerWeights& weights = weights_.layers[static_cast<std::size_t>(layer)];
  const bool asked =
      capture != nullptr && std::count(capture->streams->begin(), capture->streams->end(), stream) > 0;
  const auto hand_out = [&](CapturePoint point, const at::Tensor& values) {
    if (asked && (capture->point == point || stream == Stream::v)) capture->sink(layer, stream, values);
  };
  const Linear& linear = stream == Stream::q ? weights.q : stream == Stream::k ? weights.k : weights.v;
  at::Tensor values = apply(linear, x).view({x.size(0), heads(stream).count, config_.head_size});
  hand_out(CapturePoint::proj, values);
  if (stream == Stream::v) return values;
  values = norm_heads(values, stream == Stream::q ? weights.q_norm : weights.k_norm);
  hand_out(CapturePoint::normed, values);
  values = rotate(values, table);
  hand_out(CapturePoint::roped, values);
  return values;
}

/// What the heads of this rank gather: [tokens, heads d].
at::Tensor Transformer::attention(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                                  const RopeTable& table, const Capture* capture, KvCache* cache) const {
  const at::Tensor q = project(layer, Stream::q, x, table, capture);
  const at::Tensor k = project(layer, Stream::k, x, table, capture);
  const at::Tensor v = project(layer, Stream::v, x, table, capture);
  const at::Tensor mixed = cache != nullptr ? cache->attend(layer, q, k, v, batch.lengths)
                                            : causal_attention(q, k, v, batch.lengths);
  return mixed.view({x.size(0), -1});
}

void Transformer::measure(std::int64_t layer, const at::Tensor& x, const Capture* capture) const {
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

/// The input of the down projection.
at::Tensor Transformer::mlp(const LayerWeights& layer, const at::Tensor& x) const {
  at::Tensor gate = apply(layer.gate, x);
  silu_and_multiply(gate, apply(layer.up, x));
  return gate;
}

/// Of a layer whose inputs are split over the ranks: a bias is added once, after the sum.
BegunSum Transformer::begin_parts(const Linear& linear, const at::Tensor& x) const {
  return {*tensor_parallel_, apply(tensor_parallel_->size() == 1 ? linear : Linear{linear.weight, {}}, x)};
}

at::Tensor Transformer::finish_parts(const Linear& linear, BegunSum& parts) const {
  at::Tensor sum = parts.finish();
  return tensor_parallel_->size() > 1 && linear.bias.defined() ? sum.add_(linear.bias) : sum;
}

at::Tensor Transformer::norm(const at::Tensor& x, const at::Tensor& gain) const {
  return rms_norm(x, gain, config_.norm_eps, config_.round_once);
}

/// x: [tokens, heads of this rank, head_size].
at::Tensor Transformer::norm_heads(const at::Tensor& x, const at::Tensor& gain) const {
  if (config_.qk_norm == QkNorm::none) return x;
  if (config_.qk_norm == QkNorm::per_head) return norm(x, gain);
  const at::Tensor flat = x.view({x.size(0), -1});
  return rms_norm(flat, gain, config_.norm_eps, config_.round_once, tensor_parallel_).view(x.sizes());
}

}  // namespace headspan
