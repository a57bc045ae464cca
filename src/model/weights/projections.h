// The weights that project to queries, keys and values, for statistics of the weights themselves: each
// projection as the matrix W: [hidden, heads * head_size] whose columns are the output coordinates (the
// stored tensor transposed), and the gain of the norm after it. Reads only what is asked for; no forward
// pass.
#pragma once

#include <vector>

#include "base/range.h"
#include "io/checkpoint/checkpoint.h"
#include "io/stream.h"
#include "model/core/model_config.h"
#include "model/weights/weights.h"

namespace headspan {

class Projections {
 public:
  /// Reads a checkpoint, which must outlive the object.
  Projections(const ModelConfig& config, const Checkpoint& checkpoint);
  /// Draws the weights that Transformer::random draws.
  Projections(const ModelConfig& config, std::uint64_t seed, Dtype dtype);

  std::int64_t layers() const { return config_.layers; }
  std::int64_t hidden_size() const { return config_.hidden_size; }
  std::int64_t head_size() const { return config_.head_size; }
  /// Query heads for q, KV heads for k and v; z has no projection of its own.
  std::int64_t heads(Stream stream) const;

  /// Whether a norm with a gain follows the projection: q_norm or k_norm.
  bool has_gain(Stream stream) const;

  /// Returns columns first .. first + count of W, of hidden_size() values each. Local. Throws InputError if
  /// the checkpoint holds NaN or infinity, Error if it cannot be read.
  std::vector<double> columns(std::int64_t layer, Stream stream, std::int64_t first,
                              std::int64_t count) const;

  /// Returns the gain of each column: q_norm or k_norm, repeated for every head if the norm is per head; ones
  /// if there is no norm.
  std::vector<double> gain(std::int64_t layer, Stream stream) const;

 private:
  at::Tensor read(const WeightSlice& part) const;
  at::Tensor read(const at::Tensor& weight, Range rows) const;

  ModelConfig config_;
  const Checkpoint* checkpoint_ = nullptr;  // null: drawn
  std::uint64_t seed_ = 0;
  Dtype dtype_ = Dtype::float32;
  Weights weights_;  // names and shapes only
};

}  // namespace headspan
