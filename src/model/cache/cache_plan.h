// What a KV cache does with keys and values, in tensors: how a layer's columns of a token become its stored
// block, and how every head of a layer is read from stored blocks. A cache plan is made from a compression
// plan, or for a full cache. Under tensor parallelism it has the KV heads of its rank, counted from 0; where
// blocks are sharded, it has the heads of all ranks.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/range.h"
#include "io/outputs/compression_plan.h"
#include "model/cache/exact_tokens.h"
#include "model/core/model_config.h"
#include "model/weights/weights.h"

namespace headspan {

/// Where tensor-parallel ranks keep what a plan makes of all heads of a layer (latents, kept heads that
/// others refer to). With S bytes of it per token, H query heads, T ranks, and N numbers in the matrices and
/// biases of decoders:
///
///   replicated   every rank stores all tokens and attends with its own heads: S bytes per rank, T S in all,
///                and N / T numbers per rank. Each rank reads all of S at every step
///
///   sharded      every rank stores some pages and attends to them with the heads of all ranks: S / T bytes
///                per rank, S in all, and N numbers per rank. Each rank reads S / T at every step. Per token
///                and layer it sends each other rank two messages: its own queries, H d / T numbers, and its
///                results for the heads of that rank, H (d + 1) / T numbers
///
/// In both cases the stored columns of new tokens are summed over the ranks. First and recent tokens that are
/// kept as they are stay on the rank of their heads. If a plan compresses one stream and leaves the other as
/// it is, both are sharded.
enum class SharedBlocks { replicated, sharded };

/// How one layer of a stream is stored: z = (x - mean) projection, or the columns of some heads, or those of
/// every head times its rotation, or x itself.
struct StoredBlock {
  std::vector<Band> bands;
  std::vector<float> weights;  ///< [r], of RecordFormat; empty where bands do not share a gain
  bool shared = false;         ///< computed from the heads of all tensor-parallel ranks
  at::Tensor mean;             ///< [D of this rank]; defined where `projection` is
  at::Tensor projection;       ///< [D of this rank, r]; undefined: columns are taken as they are
  at::Tensor rotation;         ///< [kv_heads of this rank, d, d]; undefined: none
  std::optional<std::vector<std::int64_t>> kept;  ///< among all heads of the layer; nothing: all of this rank
};

/// The map from neighbouring columns of a stored block to some heads: z[first .. first + count] matrix.
struct HeadDecoder {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> heads;  ///< ascending
  at::Tensor matrix;  ///< [heads, count, d], for keys a transposed view; undefined: the columns are the head
};

/// Columns of the stored block of one layer, read once for all their decoders.
struct StoredSlice {
  std::int64_t layer = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::vector<HeadDecoder> decoders;  ///< `first` within the slice
};

struct CachedLayer {
  std::int64_t kv_heads = 0;  ///< those that attend here: of this rank, or of all ranks
  StoredBlock block;
  std::vector<StoredSlice> slices;
  at::Tensor bias;          ///< [kv_heads, 1, d]; undefined: none
  AttentionRule attention;  ///< of the model in this layer
};

struct CachePlan {
  std::vector<CachedLayer> keys, values;  ///< [layers]
  SharedBlocks shared = SharedBlocks::replicated;
  std::int64_t head_size = 0;
  ExactTokens exact;
  std::vector<std::int64_t> document_ends;  ///< ids of tokens behind which a new document begins
};

/// Returns the plan of a full cache, which stores every head as it is.
CachePlan full_plan(const ModelConfig& config, Range heads);

/// Turns a compression plan into a cache plan. `heads`: those of this rank; `dtype`: the type in which
/// attention computes, float32 or float64. Nothing is sharded where ranks share nothing: on one rank, or
/// where the plan quantises; nor if some layer's attention has a window or caps scores. Throws InputError
/// naming `path` if the plan is for another model, or if it rounds groups of columns that lie on two ranks.
CachePlan make_cache_plan(const ModelConfig& config, const CompressionPlan& plan, Range heads,
                          at::ScalarType dtype, SharedBlocks shared, const std::string& path);

/// Returns the plan of a full cache, except that one layer of one stream is stored as `plan` says.
CachePlan one_block_plan(const ModelConfig& config, const CompressionPlan& plan, Stream stream,
                         std::int64_t layer, Range heads, at::ScalarType dtype);

}  // namespace headspan
