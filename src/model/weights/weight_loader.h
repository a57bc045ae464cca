// Loads the weights of one rank from a checkpoint. A rank needs only the byte ranges of its own slices. Ranks
// of one node each read all of theirs, which the node's page cache has after the first. On several nodes the
// data-parallel ranks, which have the same slices, each read a part of every chunk and send it to the others,
// so that no byte is read twice. All threads of a rank read, ahead of exchange and conversion.
#pragma once

#include <optional>

#include "dist/comm/mpi.h"
#include "io/checkpoint/checkpoint.h"
#include "model/weights/weights.h"

namespace headspan {

/// Checks that the checkpoint holds every tensor of the extent with the right shape and a dtype of F64, F32,
/// BF16 or F16, and none in a layer that this model does not have; reads no weights. Throws InputError naming
/// file and tensor. Local.
void check_weights(const Checkpoint& checkpoint, const ModelConfig& config, Extent extent);

/// Whether a rank reads all that it needs, or what others need as well is divided among them and sent.
enum class WeightReading { all, divided };

/// Returns `all` if the ranks of both communicators, those of each rank of the other included, are on one
/// node. Collective over both.
WeightReading weight_reading(const Comm& tensor_parallel, const Comm& data_parallel);

/// Checks the tensors of `weights` as check_weights does, then reads them and refuses NaN and infinity.
/// Converts dtypes where they differ. Collective over both communicators: `tensor_parallel` joins the shards,
/// `data_parallel` the ranks that hold the same shard; `reading` is the same on all ranks. Throws AgreedError
/// naming file and tensor.
void load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Weights& weights,
                  const Comm& tensor_parallel, const Comm& data_parallel, WeightReading reading);

/// Reads one slice as stored: [rows.count, columns.count] or [rows.count]. Throws InputError naming file and
/// tensor if it holds NaN or infinity. Local.
at::Tensor read_slice(const Checkpoint& checkpoint, const WeightSlice& slice);

/// Returns the dtype of the forward pass: `asked` if it is given; else that of the embedding in the
/// checkpoint; without a checkpoint what config.json says, or float32 if it says nothing. Throws InputError
/// naming the tensor.
Dtype forward_dtype(std::optional<Dtype> asked, const ModelConfig& config, const Checkpoint* checkpoint);

/// Returns the dtype in which matrices are stored for a forward pass in `forward`. That is `forward`, except
/// for float32 if all matrices of the checkpoint are bfloat16 (without a checkpoint: if config.json says so).
/// Then it is bfloat16, which loses nothing.
Dtype weight_dtype(Dtype forward, const ModelConfig& config, const Checkpoint* checkpoint);

}  // namespace headspan
