// forward: the forward pass, on every rank a batch of its own, against the bare matrix products of the linear
// layers that it runs: in float32 on the CPU, in bfloat16 on a GPU where this process sees one. The weights
// are drawn where the folder has none. Its peer is `peers.py transformers` on the same folder and lengths.
#include <map>

#include <ATen/ATen.h>

#include "bench/bench.h"
#include "device/device_values.h"
#include "model/forward/transformer.h"
#include "model/types/read_config.h"

namespace headspan {
namespace {

/// The matrix products of the linear layers of an extent, and nothing else.
class BareProducts {
 public:
  BareProducts(const ModelConfig& config, Extent extent, std::int64_t tokens, at::TensorOptions where)
      : where_(where) {
    const Weights weights =
        allocate_weights(config, extent, {}, c10::typeMetaToScalarType(where.dtype()), where.device());
    for (const LayerWeights& layer : weights.layers)
      for (const Linear* linear :
           {&layer.q, &layer.k, &layer.v, &layer.o, &layer.gate, &layer.up, &layer.down})
        add(linear->weight, tokens);
    add(weights.lm_head, tokens);
  }

  /// Of one token.
  double gflop() const {
    double flop = 0;
    for (const at::Tensor& weight : weights_) flop += 2 * static_cast<double>(weight.numel());
    return 1e-9 * flop;
  }

  void run() {
    for (const at::Tensor& weight : weights_)
      at::mm_out(rows_.at(-weight.size(0)), rows_.at(weight.size(1)), weight.t());
  }

 private:
  void add(const at::Tensor& weight, std::int64_t tokens) {
    if (!weight.defined()) return;
    weights_.push_back(weight.fill_(0.01));
    rows_[weight.size(1)] = at::ones({tokens, weight.size(1)}, where_);
    rows_[-weight.size(0)] = at::empty({tokens, weight.size(0)}, where_);
  }

  at::TensorOptions where_;
  std::vector<at::Tensor> weights_;
  std::map<std::int64_t, at::Tensor> rows_;  // [tokens, width] by width: inputs; by -width: outputs
};

PackedBatch make_batch(const BenchOptions& options, std::int64_t vocab_size) {
  PackedBatch batch;
  for (std::int64_t t = 0; t < options.tokens; ++t) batch.tokens.push_back(t * 7919 % vocab_size);
  for (std::int64_t t = 0; t < options.tokens; t += options.sequence_length)
    batch.lengths.push_back(std::min(options.sequence_length, options.tokens - t));
  return batch;
}

bool against_products(const BenchOptions& options, const Comm& comm, const std::string& name,
                      at::Device device, BareProducts products, const std::function<void()>& forward) {
  const TurnTimes times = time_in_turn(
      comm, options.repeats,
      [&] {
        products.run();
        wait_for(device);
      },
      [&] {
        forward();
        wait_for(device);
      });
  const auto tokens = static_cast<double>(options.tokens * comm.size());
  const Use use{device.is_cpu() ? Resource::fp32 : Resource::none, products.gflop() * tokens / times.routine};
  return report(options, comm,
                {name + ", against its bare matrix products", "tokens/s", tokens / times.routine,
                 tokens / times.limit, times.speed, device.is_cpu() ? 0.95 : kNone, use});
}

Transformer make_model(const std::string& folder, const ModelConfig& config, Dtype dtype,
                       const DeviceComm& self, const Comm& comm, at::Device device) {
  const Extent all{config.layers, true};
  if (!has_weights(folder)) return Transformer::random(config, 0, {dtype, all, device}, self);
  return Transformer::load(config, Checkpoint::open(folder), {dtype, all, device}, self, comm);
}

}  // namespace

bool bench_forward(const BenchOptions& given, const Comm& comm) {
  const ModelConfig config = read_model_config(given.folder + "/config.json");
  BenchOptions options = with_shape_of(config, given);
  const at::Device device = bench_place(given, comm);
  const Dtype dtype = device.is_cuda() ? Dtype::bfloat16 : Dtype::float32;
  options.precision = dtype_name(dtype);
  const at::TensorOptions where = at::dtype(scalar_type(dtype)).device(device);
  const auto self = make_device_comm(comm.split(comm.rank(), 0), {});
  const Extent all{config.layers, true}, captured{config.layers, false};
  const Transformer model = make_model(options.folder, config, dtype, *self, comm, device);
  const PackedBatch batch = make_batch(options, config.vocab_size);
  const auto keep_none = [](std::int64_t, Stream, const at::Tensor&) {};
  const bool capture = against_products(
      options, comm, "capture of K, Q and V", device, BareProducts(config, captured, options.tokens, where),
      [&] {
        model.capture_tensors(batch, CapturePoint::roped, {Stream::k, Stream::q, Stream::v}, keep_none);
      });
  const bool logits =
      against_products(options, comm, "forward to logits", device,
                       BareProducts(config, all, options.tokens, where), [&] { model.logits(batch); });
  return capture && logits;
}

}  // namespace headspan
