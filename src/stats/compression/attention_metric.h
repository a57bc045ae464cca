// What an error in a key or a value costs attention: for each KV head of a layer a symmetric d x d matrix M,
// so that an error e in a token's key or value costs e M e^T. Keys and values of all layers are in one unit,
// the expected relative squared change of what the attention block adds to the residual stream.
//
//   values   M_t = sum_h w O_h                      over the query heads h that read KV head t
//
//   keys     M_t = sum_h tr(w O_h C_tt) Q_h,        C_tt the covariance of the *values* of head t
//
// with O_h = W_h^T diag(g)^2 W_h / m (W_h: the columns of o_proj of head h, g the gain of a norm behind it),
// Q_h = E[q q^T] / d of the roped queries, and w = E[1 / mean square] of the block's output where it is
// normalised before it is added, else of the residual stream behind the addition.
#pragma once

#include <cstdint>
#include <vector>

#include "dist/comm/mpi.h"

namespace headspan {

/// Of one model and some tokens; replicated.
struct AttentionMoments {
  std::int64_t layers = 0;
  std::int64_t heads = 0;  ///< query heads
  std::int64_t kv_heads = 0;
  std::int64_t head_size = 0;
  std::vector<double> scale;   ///< w: [layers]
  std::vector<double> query;   ///< Q: [layers, heads, d, d]
  std::vector<double> output;  ///< O: [layers, heads, d, d]
};

/// Sums Q and w over tokens as they come, on each rank over what it sees.
class AttentionSums {
 public:
  AttentionSums(std::int64_t layers, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_size);

  /// Adds heads first .. first + count of the queries of some tokens. values: [tokens, count, d]; `rows`:
  /// those that count.
  template <class T>
  void add_queries(std::int64_t layer, std::int64_t first, std::int64_t count, const T* values,
                   const std::vector<std::int64_t>& rows);

  /// Adds the mean squares (with the norm's epsilon) of tokens: [tokens]. On one rank of those that share the
  /// tokens.
  void add_mean_squares(std::int64_t layer, const std::vector<double>& values,
                        const std::vector<std::int64_t>& rows);

  /// What this rank has summed so far, not yet divided, of each matrix the triangle i >= j at [j, i]: for
  /// saving it and going on from it.
  AttentionMoments& sums() { return sums_; }

  /// The moments over `tokens` tokens of all ranks, without `output`. Collective over comm.
  AttentionMoments finish(const Comm& comm, std::int64_t tokens);

 private:
  AttentionMoments sums_;
};

/// M of the values of a layer's KV heads: [kv_heads, d, d].
std::vector<double> value_metric(const AttentionMoments& moments, std::int64_t layer);

/// M of the keys. value_covariance: C_tt, [kv_heads, d, d].
std::vector<double> key_metric(const AttentionMoments& moments, std::int64_t layer,
                               const std::vector<double>& value_covariance);

}  // namespace headspan
