// Attention's metric: what an error in a key or a value costs. It is a symmetric d x d matrix M for each KV
// head of a layer; an error e in a token's key or value costs e M e^T. The unit is the same for keys and
// values of all layers: the expected relative squared change of what the attention block adds to the residual
// stream.
//
//   values   M_t = sum_h w O_h                      over the query heads h that read KV head t
//
//   keys     M_t = sum_h tr(w O_h C_tt) Q_h,        C_tt the covariance of the *values* of head t
//
// with O_h = W_h^T diag(g)^2 W_h / m (W_h: the columns of o_proj of head h, g: the gain of a norm after it,
// m: the hidden size), Q_h = E[q q^T] / d of the queries after RoPE, and w = E[1 / mean square] of the
// block's output if it is normalised before it is added, else of the residual stream after the addition.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/comm/mpi.h"

namespace headspan {

/// Moments of a model over a set of tokens, the same on all ranks.
struct AttentionMoments {
  std::int64_t layers = 0;
  std::int64_t heads = 0;  ///< query heads
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::vector<double> scale;   ///< w: [layers]
  std::vector<double> query;   ///< Q: [layers, heads, d, d]
  std::vector<double> output;  ///< O: [layers, heads, d, d]
};

/// Sums Q and w over tokens as they arrive, on each rank over its own.
class AttentionSums {
 public:
  AttentionSums(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size);

  /// Adds the queries of heads first .. first + count - 1 at the tokens `rows` of values: [tokens, count, d].
  template <class T>
  void add_queries(std::int64_t layer, std::int64_t first, std::int64_t count, const T* values,
                   const std::vector<std::int64_t>& rows);

  /// Adds the mean squares (with the norm's epsilon) at the tokens `rows` of values: [tokens]. For one of the
  /// ranks that share the tokens.
  void add_mean_squares(std::int64_t layer, const std::vector<double>& values,
                        const std::vector<std::int64_t>& rows);

  /// Returns the sums of this rank so far, to save and to restore them; of each matrix the triangle i >= j at
  /// [j, i].
  AttentionMoments& sums() { return sums_; }

  /// Returns the moments over the `tokens` tokens of all ranks, without `output`. Collective over comm.
  AttentionMoments finish(const Comm& comm, std::int64_t tokens);

 private:
  AttentionMoments sums_;
};

/// Returns M of the values of a layer's KV heads: [kv_heads, d, d]. Local.
std::vector<double> value_metric(const AttentionMoments& moments, std::int64_t layer);

/// Returns M of the keys of a layer's KV heads: [kv_heads, d, d]. value_covariance: C_tt, [kv_heads, d, d].
/// Local.
std::vector<double> key_metric(const AttentionMoments& moments, std::int64_t layer,
                               const std::vector<double>& value_covariance);

}  // namespace headspan
