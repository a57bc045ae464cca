// What a rank has to work with, decided before the ranks are laid out: its GPU, its threads, its memory, and
// how many ranks share one copy of a model's weights.
#pragma once

#include <map>
#include <optional>

#include "app/job/job.h"
#include "app/job/unit.h"
#include "base/log.h"
#include "dist/comm/mpi.h"
#include "model/core/dtype.h"
#include "model/core/model_config.h"

namespace headspan {

/// The models that a group loads, one at a time, each beside the reference if there is one.
struct LoadedModels {
  std::map<std::string, ModelConfig> configs;  ///< by path
  Dtype dtype = Dtype::float32;                ///< of the forward
  bool logits = false;                         ///< whether the output layer is loaded, as load_model takes it
  std::map<std::string, ModelConfig> reference{};  ///< one, or none
};

/// Returns run.tensor_parallel; for auto the smallest divisor of `ranks` (of a group) and of the KV heads for
/// which the weights that are loaded fit half the `memory` of a rank, in bytes. Throws InputError naming
/// run.tensor_parallel if the given number does not divide the KV heads of some model, or if nothing fits.
/// Local; the same on all ranks.
int choose_tensor_parallel(const Job::Run& run, const Job::Model& model, const LoadedModels& loaded,
                           int ranks, double memory);

/// The same for the models of these units; 1 for units without a model.
int choose_tensor_parallel(const Job::Run& run, const Job::Model& model, const std::vector<Unit>& units,
                           bool logits, int ranks, double memory);

/// Checks the layout of a command that works on one model with all ranks: run.groups must be 1, and the ranks
/// must divide as run.tensor_parallel and run.grid say. Throws InputError. Local; the same on all ranks.
void check_one_group(const Job::Run& run, int ranks);

/// Returns the dtype in which the matrices of a job's models are stored, as far as config.json says: that of
/// weight_dtype (model/weights/weight_loader.h), or `forward` if weights are drawn. Local.
Dtype planned_weight_dtype(const Job::Model& model, const ModelConfig& config, Dtype forward);

/// Returns the GPU that this rank computes on, by its rank within the node; none unless run.device asks for
/// GPUs. Throws AgreedError (exit code 1) if some node has none. Collective over world.
std::optional<int> choose_gpu(const Job::Run& run, const Comm& world);

/// Returns the bytes of memory that a rank may use: run.memory_gib, or for auto its share of what the node
/// and the ranks' control groups allow. The minimum over the ranks. Collective over comm.
double memory_of_rank(const Job::Run& run, const Comm& comm);

/// Returns the bytes of its GPU that a rank may use: run.gpu_memory_gib, or for auto the free memory divided
/// by the ranks that share the GPU. The minimum over the ranks. Collective over comm.
double gpu_memory_of_rank(const Job::Run& run, const Comm& comm, int gpu);

/// Returns bytes in words for messages: "12.5 GiB".
std::string format_gib(double bytes, int decimals);

/// Gives OpenMP, BLAS and LibTorch the threads of this rank, and returns their number. A verbose log says
/// where each rank runs. Collective over comm.
int start_threads(const Comm& comm, const Log& log);

/// Logs the peak memory of the fullest rank if the log is verbose. Collective over comm.
void tell_memory(const Comm& comm, const Log& log);

}  // namespace headspan
