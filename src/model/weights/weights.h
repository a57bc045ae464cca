// The weights of a model as one rank holds them, and for each of them which slice of the checkpoint's tensor
// it is, as the description of the model has names and storage. This is the one place that knows how tensor
// parallelism splits them.
// weight_loader.h fills the weights from a checkpoint, weight_initializer.h at random.
//
// Each tensor-parallel rank holds a share of the rows of q, k, v (whole heads), gate and up and of their
// biases, a share of the columns of o and down, and a share of the rows of the embedding and of lm_head.
// Norms over the hidden size and the biases of o and down are on every rank.
#pragma once

#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/range.h"
#include "model/core/dtype.h"
#include "model/core/model_config.h"
#include "model/weights/linear.h"

namespace headspan {

/// How much of a model is loaded: the first `layers` layers, but of the last one only what produces its q, k
/// and v; with `logits`, the whole model.
struct Extent {
  std::int64_t layers = 0;
  bool logits = false;
};

/// One of the tensor-parallel ranks: 0 <= rank < size, and size divides the KV heads.
struct Shard {
  std::int64_t rank = 0;
  std::int64_t size = 1;
};

/// Of a norm over the hidden size, [hidden]; undefined where the model has none.
struct NormWeights {
  at::Tensor gain, bias;
};

/// The trained numbers of xIELU (forward/activation.h), [1].
struct XieluWeights {
  at::Tensor alpha_p, alpha_n, beta, eps;
};

/// The weights of one layer; undefined where the architecture or the extent has none.
struct LayerWeights {
  Linear q, k, v, o;
  Linear gate, up, down;
  at::Tensor q_norm, k_norm;
  NormWeights attention_norm_before, attention_norm_after, mlp_norm_before, mlp_norm_after;
  XieluWeights xielu;
};

/// Rows and columns of one tensor of the checkpoint, and the memory in which this rank holds them.
struct WeightSlice {
  enum class Role { linear, embedding, constant };
  std::string name;                 ///< in the checkpoint
  std::vector<std::int64_t> shape;  ///< of the whole tensor there: [rows, columns], [rows] or []
  Range rows;
  Range columns;  ///< {0, 1} for a tensor of fewer dimensions than two
  bool shared;    ///< every tensor-parallel rank holds this same slice
  Role role;
  double initial;          ///< of a constant: what random initialisation sets it to
  at::Tensor values;       ///< contiguous, [rows.count, columns.count] or [rows.count]; memory of Weights
  std::string other_name;  ///< under which some checkpoints have the tensor; empty: none
};

struct Weights {
  at::Tensor embedding;  ///< [vocabulary rows of this rank, hidden]
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  at::Tensor lm_head;  ///< [vocabulary rows of this rank, hidden]; the embedding itself where they are tied
  std::vector<WeightSlice> slices;
};

/// The dtypes in which weights are stored.
struct WeightTypes {
  at::ScalarType matrices;  ///< of linear layers and vocabularies
  at::ScalarType vectors;   ///< gains and biases
};

/// Makes all tensors of the extent, uninitialised. On the meta device nothing is allocated, for names and
/// shapes. Throws InputError if the shard's size does not divide the KV heads.
Weights allocate_weights(const ModelConfig& config, Extent extent, Shard shard, WeightTypes types,
                         at::Device device);
Weights allocate_weights(const ModelConfig& config, Extent extent, Shard shard, at::ScalarType dtype,
                         at::Device device);

/// Returns the bytes of the weights, all in `dtype`, on that of `tensor_parallel` ranks which holds the most.
/// A double, because the sizes in config.json may give more bytes than 64 bits can count.
double weight_bytes(const ModelConfig& config, Extent extent, std::int64_t tensor_parallel, Dtype dtype);

}  // namespace headspan
