// The forward pass of a decoder-only transformer over packed tokens: sequences lie end to end without
// padding, and every token is a row. It passes Q, K, V and Z to a sink as it computes them, and stops when
// nothing more is needed. A Transformer is one rank's shard, in host memory or on a GPU; the ranks of a
// tensor-parallel communicator call it together, with the same batch. Attention is over the batch alone, or
// also over a KV cache (model/cache/kv_cache.h). No statistics, no files of results.
#pragma once

#include <algorithm>
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

/// Receives [tokens, heads of this rank, head_size], contiguous, valid during the call: query heads for q
/// and z, KV heads (not repeated) for k and v.
template <class T>
using CaptureSink = std::function<void(std::int64_t layer, Stream stream, const T* values)>;

/// Receives the same values without conversion, on the device and in the dtype of the forward pass: [tokens,
/// heads, head_size].
using TensorSink = std::function<void(std::int64_t layer, Stream stream, const at::Tensor& values)>;

/// Receives for each token of a batch a mean square, plus the norm's epsilon, by which errors of the
/// attention block's output are divided: that of the output itself if it is normalised before it is added
/// (OLMo-2), else that of the residual stream after the addition; for layer norms less the mean.
using MeanSquareSink = std::function<void(std::int64_t layer, const std::vector<double>& values)>;

class KvCache;

struct TransformerOptions {
  Dtype dtype;                   ///< of the forward pass
  Extent extent;                 ///< which layers there are
  at::Device device = at::kCPU;  ///< where the weights are kept and the model runs
};

class Transformer {
 public:
  /// Loads the weights. Collective over both communicators: `tensor_parallel` joins the shards of one model
  /// and must outlive the object, `data_parallel` the ranks that hold the same shard. Throws AgreedError.
  static Transformer load(const ModelConfig& config, const Checkpoint& checkpoint,
                          const TransformerOptions& options, const DeviceComm& tensor_parallel,
                          const Comm& data_parallel);

  /// Draws the weights. A seed gives the same model on any number of ranks. Collective over the communicator,
  /// which must outlive the object. Throws AgreedError.
  static Transformer random(const ModelConfig& config, std::uint64_t seed, const TransformerOptions& options,
                            const DeviceComm& tensor_parallel);

  const ModelConfig& config() const { return config_; }
  at::Device device() const { return device_; }
  at::ScalarType dtype() const { return dtype_; }  ///< of the forward pass and of what is captured
  const Weights& weights() const { return weights_; }

  /// Returns which of all heads of a stream this rank has.
  Range heads(Stream stream) const;

  /// Runs the batch and passes the `streams` of each layer of the extent to `sink`, layers ascending,
  /// converted to T: double or float. With `mean_squares` the last layer's attention runs too: the extent
  /// must have logits. Collective over the tensor-parallel communicator.
  template <class T>
  void capture(const PackedBatch& batch, CapturePoint point, const std::vector<Stream>& streams,
               const CaptureSink<T>& sink, const MeanSquareSink& mean_squares = {}) const;

  /// The same without conversion or a copy to the host.
  void capture_tensors(const PackedBatch& batch, CapturePoint point, const std::vector<Stream>& streams,
                       const TensorSink& sink, const MeanSquareSink& mean_squares = {}) const;

  /// Returns the quadratic form that turns an error in the output of a query head of this rank into the mean
  /// square error of the attention block's output: W^T diag(g)^2 W / hidden_size for its columns W of o_proj
  /// and the gain g of a norm after it: [heads of this rank, d, d]. Local.
  std::vector<double> output_metric(std::int64_t layer) const;

  /// Returns next-token logits [tokens, vocabulary] on every rank; needs an extent with logits. Collective
  /// over the tensor-parallel communicator.
  at::Tensor logits(const PackedBatch& batch) const;

  /// Returns the hidden states after the last norm: [tokens, hidden]. The batch has one length, possibly 0,
  /// for each sequence of the cache. Its tokens follow those in the cache and are appended to it. Collective
  /// over the tensor-parallel communicator.
  at::Tensor hidden(const PackedBatch& batch, KvCache& cache) const;

  /// Returns logits [rows, vocabulary] of rows of hidden states. Collective over the tensor-parallel
  /// communicator.
  at::Tensor logits(const at::Tensor& hidden) const;

 private:
  struct Capture {
    CapturePoint point;
    const std::vector<Stream>* streams;
    TensorSink sink;
    const MeanSquareSink* mean_squares;  // empty: none

    bool has(Stream stream) const { return std::count(streams->begin(), streams->end(), stream) > 0; }
  };

  /// Of the tokens of a batch: of layers with a window, where these have a rule of their own, and of others.
  struct RopeTables {
    RopeTable plain, window;
  };

  Transformer(const ModelConfig& config, const TransformerOptions& options,
              const DeviceComm& tensor_parallel);

  at::Tensor embed(const std::vector<std::int64_t>& tokens) const;
  at::Tensor run(const PackedBatch& batch, std::int64_t layers, const Capture* capture, KvCache* cache) const;
  RopeTables rope_tables(const PackedBatch& batch, const KvCache* cache) const;
  void capture_only(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                    const RopeTables& tables, const Capture& capture) const;
  at::Tensor run_layer(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                       const RopeTables& tables, const Capture* capture, KvCache* cache) const;
  at::Tensor project(std::int64_t layer, Stream stream, const at::Tensor& x, const RopeTables& tables,
                     const Capture* capture) const;
  at::Tensor attention(std::int64_t layer, const at::Tensor& x, const PackedBatch& batch,
                       const RopeTables& tables, const Capture* capture, KvCache* cache) const;
  std::vector<Range> row_chunks(std::int64_t rows, const Capture* capture) const;
  void report_mean_squares(std::int64_t layer, const at::Tensor& x, const Capture* capture) const;
  at::Tensor mlp(const LayerWeights& layer, const at::Tensor& x) const;
  PendingSum begin_sum(const Linear& linear, const at::Tensor& x) const;
  at::Tensor finish_sum(const Linear& linear, PendingSum& sum) const;
  at::Tensor norm(const at::Tensor& x, const NormWeights& weights) const;
  at::Tensor whole_gain(const at::Tensor& gain) const;
  at::Tensor norm_if(const std::string& name, const at::Tensor& x, const NormWeights& weights) const;
  at::Tensor norm_heads(const at::Tensor& x, const at::Tensor& gain) const;

  ModelConfig config_;
  at::ScalarType dtype_;
  const DeviceComm* tensor_parallel_;
  at::Device device_;
  Weights weights_;
};

}  // namespace headspan
