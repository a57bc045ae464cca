// Second moments of what passes through attention, summed over the tokens of sequences, and the rotations
// that are made from them (OSCAR, covariance-aware two-bit quantisation of KV caches). One rank sums over its
// own sequences and heads; app/compress/oscar_rotations.h says of which tokens, and adds the ranks up.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/comm/device_comm.h"
#include "model/core/dtype.h"
#include "model/forward/transformer.h"

namespace headspan {

/// Of each KV head of all layers.
struct WeightedMoments {
  std::vector<double> sums;     ///< of w x x^T: [layers, kv_heads, d, d]
  std::vector<double> weights;  ///< of w: [layers, kv_heads]
};

class RotationMoments {
 public:
  /// `forward`: the type of the forward; positions before `skip_first` of each sequence are left out. The
  /// model and the communicator must outlive the object.
  RotationMoments(const Transformer& model, Dtype forward, std::int64_t skip_first,
                  const DeviceComm& tensor_parallel);

  using Sequences = std::vector<std::vector<std::int64_t>>;

  /// Adds q q^T, with w = 1, over the queries, after RoPE, that read each KV head. Collective over
  /// tensor_parallel.
  void add_queries(const Sequences& sequences, WeightedMoments& moments) const;

  /// Adds w v v^T, w = k^T M k of the same token with M the queries' moments of the head: metric, [layers,
  /// kv_heads, d, d], in any unit. Collective over tensor_parallel.
  void add_values(const Sequences& sequences, const std::vector<double>& metric,
                  WeightedMoments& moments) const;

 private:
  const Transformer& model_;
  Dtype forward_;
  std::int64_t skip_first_;
  const DeviceComm& tensor_parallel_;
};

/// The coordinates of the heads of one stream in a layer.
struct Rotations {
  std::vector<float> matrices;      ///< R H: [heads, d, d], row-major
  std::vector<double> eigenvalues;  ///< [heads, d], descending for each head
};

/// Returns R H for the eigenvectors R of each head's moments: [heads, d, d], and the Hadamard matrix H.
/// Local.
Rotations rotations_of(std::vector<double> moments, std::int64_t heads, std::int64_t d);

}  // namespace headspan
