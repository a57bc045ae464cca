// The forward pass of a decoder-only transformer over packed tokens: sequences lie end to end and there is no
// padding, every token is a row. It hands out Q, K and V as it goes, and stops where nothing more is asked. A
// transformer is one rank's shard, in memory or on a GPU; ranks of a tensor-parallel communicator call
// together with the same batch. Attention goes over the batch alone, or over a KV cache too
// (model/cache/kv_cache.h). Nothing of files or statistics.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/range.h"
#include "dist/comm/device_comm.h"
#include "io/checkpoint/checkpoint.h"
#include "io/stream.h"
#include "model/core/dtype.h"
#include "model/core/model_config.h"
#include "model/core/tensor_comm.h"
#include "model/forward/rope.h"
#include "model/weights/weights.h"

namespace headspan {

/// Sequences of tokens laid end to end; every token is below the vocabulary size, every length at least 1,
/// and the lengths sum to the number of tokens.
struct PackedBatch {
  std::vector<std::int64_t> tokens;
  std::vector<std::int64_t> lengths;
};

/// Receives [tokens, heads of this rank, head_size], contiguous, valid during the call: query heads for q, KV
/// heads (not repeated) for k and v.
template <class T>
using CaptureSink = std::function<void(std::int64_t layer, Stream stream, const T* values)>;

/// The same values as the forward made them: on its device, in its dtype, [tokens, heads, head_size].
using TensorSink = std::function<void(std::int64_t layer, Stream stream, const at::Tensor& values)>;

/// Receives for each token of a batch the mean square that its attention block's output is measured by, with
/// the norm's epsilon: of that output where it is normalised before it is added, else of the residual stream
/// behind the addition.
using MeanSquareSink = std::function<void(std::int64_t layer, const std::vector<double>& values)>;

class KvCache;

struct TransformerOptions {
  Dtype dtype;                   ///< of the forward
  Extent extent;                 ///< which layers there are
  at::Device device = at::kCPU;  ///< where the weights are kept and the model runs
};

class Transformer {
 public:
  /// Reads the weights. Collective over both communicators: `tensor_parallel` joins the shards of one model
  /// and must outlive the object, `data_parallel` the ranks that hold the same shard. Throws AgreedError.
  static Transformer load(const ModelConfig& config, const Checkpoint& checkpoint,
                          const TransformerOptions& options, const DeviceComm& tensor_parallel,
                          const Comm& data_parallel);

  /// Draws the weights: the same model for one seed whatever the number of ranks. Collective over the
  /// communicator, which must outlive the object. Throws AgreedError.
  static Transformer random(const ModelConfig& config, std::uint64_t seed, const TransformerOptions& options,
                            const DeviceComm& tensor_parallel);

  const ModelConfig& config() const { return config_; }
  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return dtype_; }  ///< of what is captured

  /// The heads of this rank among all heads of a stream.
  Range heads(Stream stream) const;

  /// Runs the batch and hands out the `streams` of each layer of the extent, layers ascending, converted to
  /// T: double or float. With `mean_squares` these too, for which the last layer's attention runs: the extent
  /// must have logits. Collective over the tensor-parallel communicator.
  template <class T>
  void capture(const PackedBatch& batch, CapturePoint point, const std::vector<Stream>& streams,
               const CaptureSink<T>& sink, const MeanSquareSink& mean_squares = {}) const;

  /// The same without a copy to the host.
  void capture_tensors(const PackedBatch& batch, CapturePoint point, const std::vector<Stream>& streams,
                       const TensorSink& sink, const MeanSquareSink& mean_squares = {}) const;

  /// What an error in what a query head of this rank gathers does to the attention block's output: W^T
  /// diag(g)^2 W / hidden_size for its columns W of o_proj and the gain g of a norm behind it: [heads of this
  /// rank, d, d]. Local.
  std::vector<double> output_metric(std::int64_t layer) const;

  /// Next-token logits [tokens, vocabulary] on every rank; needs an extent with logits. Collective over the
  /// tensor-parallel communicator.
  at::Tensor logits(const PackedBatch& batch) const;

  /// What the logits are made of, [tokens, hidden], behind the last norm. The batch has one length for each
  /// sequence of the cache, 0 too: its tokens come after those that the cache has, and are in it afterwards.
  /// Collective over the tensor-parallel communicator.
  at::Tensor hidden(const PackedBatch& batch, KvCache& cache) const;

  /// Logits [rows, vocabulary] of rows of hidden. Collective over the tensor-parallel communicator.
  at::Tensor logits(const at::Tensor& hidden) const;

 private:
  struct Capture {
    CapturePoint point;
    const std::vector<Stream>* streams;
    TensorSink sink;
    const MeanSquareSink* mean_squares;  // empty: not asked for
  };

  Transformer(const ModelConfig& config, const TransformerOptions& options,
              const DeviceComm& tensor_parallel);

  at::Tensor embed(const std::vector<std::int64_t>& tokens) const;
  at::Tensor run(const PackedBatch& batch, std::int64_t layers, const Capture* capture, KvCache* cache) const;
  void project_only(std::int64_t layer, const at::Tensor& x, const RopeTable& table,
                    const Capture& capture) const;
  at::Tensor run_layer(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                       const RopeTable& table, const Capture* capture, KvCache* cache) const;
  at::Tensor project(std::int64_t layer, Stream stream, const at::Tensor& x, const RopeTable& table,
                     const Capture* capture) const;
  at::Tensor attention(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                       const RopeTable& table, const Capture* capture, KvCache* cache) const;
  std::vector<Range> row_pieces(std::int64_t rows, const Capture* capture) const;
  void measure(std::int64_t layer, const at::Tensor& x, const Capture* capture) const;
  at::Tensor mlp(const LayerWeights& layer, const at::Tensor& x) const;
  BegunSum begin_parts(const Linear& linear, const at::Tensor& x) const;
  at::Tensor finish_parts(const Linear& linear, BegunSum& parts) const;
  at::Tensor norm(const at::Tensor& x, const at::Tensor& gain) const;
  at::Tensor norm_heads(const at::Tensor& x, const at::Tensor& gain) const;

  ModelConfig config_;
  at::ScalarType dtype_;
  const DeviceComm* tensor_parallel_;
  at::Device device_;
  Weights weights_;
};

}  // namespace headspan
