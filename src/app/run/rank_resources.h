// What a rank works with, settled before the ranks are laid out: its threads, its memory, and how many ranks
// share one copy of a model's weights.
#pragma once

#include <map>
#include <optional>

#include "app/job/job.h"
#include "app/job/unit.h"
#include "dist/comm/mpi.h"
#include "model/core/dtype.h"
#include "model/core/model_config.h"

namespace headspan {

/// run.tensor_parallel, or for auto the smallest divisor of `group_ranks` and of the KV heads whose weights
/// fit half the memory of a rank. 1 for units without a model. Throws InputError naming run.tensor_parallel
/// when what was asked for does not divide the KV heads of some unit, or when nothing fits. `memory_bytes`:
/// of this rank. Local; the same on all.
int choose_tensor_parallel(const Job& job, const std::vector<Unit>& units, int group_ranks,
                           double memory_bytes);

/// The same for models of these configs, by path.
int choose_tensor_parallel(const Job& job, const std::map<std::string, ModelConfig>& configs, Dtype dtype,
                           int group_ranks, double memory_bytes);

/// The layout of a command that works on one model with all ranks: run.groups must be 1, and the ranks divide
/// as run.tensor_parallel and run.grid say. Throws InputError. Local; the same on all.
void check_one_group(const Job& job, int ranks);

/// check_one_group, and then the same for this model. Throws InputError. Local; the same on
/// all.
int choose_tensor_parallel(const Job& job, const ModelConfig& config, Dtype dtype, int ranks,
                           double memory_bytes);

/// In what the matrices of a job's models are kept, as far as config.json tells: as
/// model/weights/weight_loader.h has it, and the forward's own where weights are drawn. Local.
Dtype planned_weight_dtype(const Job& job, const ModelConfig& config, Dtype forward);

/// Throws AgreedError (exit code 1) where run.device asks for a GPU. For calibration, which has no work for
/// one. Local; the same on all.
void refuse_gpu(const Job& job);

/// The GPU that this rank computes on, by its place among the ranks of its node; none where run.device asks
/// for none. Throws AgreedError (exit code 1) where some node has none. Collective over world.
std::optional<int> choose_gpu(const Job& job, const Comm& world);

/// Memory that one rank may use: run.memory_gib, or for auto its share of what the node and the control
/// groups of its ranks allow. The least of all ranks. Collective over comm.
double memory_of_rank(const Job& job, const Comm& comm);

/// Memory of its GPU that one rank may use: run.gpu_memory_gib, or for auto what is free, divided by the
/// ranks of the node that share it. The least of all ranks. Collective over comm.
double gpu_memory_of_rank(const Job& job, const Comm& comm, int gpu);

/// Returns bytes as messages have them: "12.5 GiB".
std::string format_gib(double bytes, int decimals);

/// Gives OpenMP, BLAS and LibTorch this rank's threads, and returns how many. Collective over comm.
int start_threads(const Comm& comm);

}  // namespace headspan
