// Fills the weights of one rank from a checkpoint: every rank preads the byte ranges of its own slices and no
// others; of data-parallel ranks one reads and the others get the bytes by broadcast, so that a group reads
// no byte twice. Reading runs ahead of broadcast and conversion.
#pragma once

#include <optional>

#include "dist/comm/mpi.h"
#include "io/checkpoint/checkpoint.h"
#include "model/weights/weights.h"

namespace headspan {

/// Checks that the checkpoint holds every tensor of the extent with the right shape and a dtype of F64, F32,
/// BF16 or F16, and no tensor under a layer that this model does not have; reads none. Throws InputError
/// naming file and tensor. Local.
void check_weights(const Checkpoint& checkpoint, const ModelConfig& config, Extent extent);

/// Checks the tensors of `weights` as check_weights does; then reads them, refusing NaN and infinity. What
/// differs in dtype is converted. Collective over both communicators: `tensor_parallel` joins the shards,
/// `data_parallel` the ranks that hold the same shard. Throws AgreedError naming file and tensor.
void load_weights(const Checkpoint& checkpoint, const ModelConfig& config, Weights& weights,
                  const Comm& tensor_parallel, const Comm& data_parallel);

/// The slice as stored, [rows.count, columns.count] or [rows.count], on its own. Refuses NaN and infinity
/// with InputError naming file and tensor. Local.
at::Tensor read_slice(const Checkpoint& checkpoint, const WeightSlice& slice);

/// The dtype of the forward: `asked`, or else what the checkpoint holds its embedding in, or without a
/// checkpoint what config.json says, or else float32. Throws InputError naming the tensor.
Dtype forward_dtype(std::optional<Dtype> asked, const ModelConfig& config, const Checkpoint* checkpoint);

/// In what the matrices of a pretrained model are kept for a forward in `forward`: bfloat16 under float32
/// where the checkpoint (without one: config.json) holds no matrix in anything else, which loses nothing;
/// else the forward's own.
Dtype weight_dtype(Dtype forward, const ModelConfig& config, const Checkpoint* checkpoint);

}  // namespace headspan
