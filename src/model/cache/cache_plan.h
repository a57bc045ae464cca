// What a KV cache does with keys and values, in tensors: how a token's columns of a layer become its stored
// block, and how every head of a layer is read from stored blocks. Made from a compression plan, or the plan
// of a full cache. Of a tensor-parallel shard: its own KV heads, counted from 0; where blocks are dealt out,
// the heads of all ranks.
#pragma once

#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "base/range.h"
#include "io/outputs/compression_plan.h"
#include "model/core/model_config.h"
#include "model/weights/weights.h"

namespace headspan {

/// Where tensor-parallel ranks keep what a plan makes of all heads of a layer (latents, kept heads that
/// others refer to). With S bytes of it for a token, H query heads, T ranks, N numbers of lifts and biases:
///
///   replicated   every rank stores all tokens and attends with its own heads: S bytes on each rank, T S in
///                all, and N / T numbers on each. Each rank reads all of S at every step
///
///   dealt        every rank stores some pages and attends to them with the heads of all ranks: S / T bytes
///                on each rank, S in all, and N numbers on each. Each rank reads S / T at every step. For a
///                token of a layer it sends each other rank two messages: its own queries, H d / T numbers,
///                and what it found for the heads of that rank, H (d + 1) / T numbers
///
/// Both sum the stored columns of new tokens over the ranks. First and recent tokens that are kept as they
/// are stay on the rank of their heads. A stream that the plan leaves as it is is dealt out with the other.
enum class SharedBlocks { replicated, sharded };

/// How one layer of a stream is stored: z = (x - mean) projection, or the columns of some heads, or x itself.
struct StoredBlock {
  std::vector<Band> bands;
  bool shared = false;    ///< made of the heads of all tensor-parallel ranks
  at::Tensor mean;        ///< [D of this rank]; undefined: nothing is subtracted
  at::Tensor projection;  ///< [D of this rank, r]; undefined: columns are taken as they are
  std::optional<std::vector<std::int64_t>> kept;  ///< of all heads of the layer; nothing: every own head
};

/// Some heads as a linear map of neighbouring columns of a stored block: z[first .. first + count] matrix.
struct HeadDecoder {
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::vector<std::int64_t> heads;  ///< ascending
  at::Tensor matrix;  ///< [heads, count, d], of keys count numbers apart; undefined: the columns are the head
};

/// Columns of the block of one layer, and who reads them: once for all decoders.
struct StoredSlice {
  std::int64_t layer = 0;
  std::int64_t first = 0;
  std::int64_t count = 0;
  std::vector<HeadDecoder> decoders;  ///< `first` within the slice
};

struct CachedLayer {
  std::int64_t kv_heads = 0;  ///< that are attended with: of this rank, or of all
  StoredBlock block;
  std::vector<StoredSlice> slices;
  at::Tensor bias;  ///< [kv_heads, 1, d]; undefined: none
};

struct CachePlan {
  std::vector<CachedLayer> keys, values;  ///< [layers]
  SharedBlocks shared = SharedBlocks::replicated;
  std::int64_t head_size = 0;
  std::int64_t exact_first = 0;   ///< first tokens of a sequence that are stored as they are
  std::int64_t exact_recent = 0;  ///< a query meets this many tokens up to its own as they are
};

/// Every head as it is.
CachePlan full_plan(const ModelConfig& config, Range heads);

/// `heads`: those of this rank; `dtype`: in which attention computes, float32 or float64. Nothing is dealt
/// out where ranks share nothing: on one rank, or where the plan quantises. Throws InputError naming `path`
/// where the plan is of another model.
CachePlan make_cache_plan(const ModelConfig& config, const CompressionPlan& plan, Range heads,
                          at::ScalarType dtype, SharedBlocks shared, const std::string& path);

/// A full cache but for one layer of one stream, which stores latents. `blocks`: [layers] of the stream, of
/// which that of `layer` is looked at; `plan` tells the sizes and exact_first.
CachePlan one_block_plan(const ModelConfig& config, const CompressionPlan& plan, Stream stream,
                         std::int64_t layer, const std::vector<PlannedBlock>& blocks, Range heads,
                         at::ScalarType dtype);

}  // namespace headspan
