// How the ranks work together. The world is divided into groups of equal size; a group works on one unit at a
// time. Inside a group the ranks form data-parallel rows of `tensor_parallel` ranks each, and all of them
// together form the grid over which the Grams are distributed.
#pragma once

#include <memory>
#include <optional>

#include "dist/comm/device_comm.h"
#include "dist/matrix/grid.h"

namespace headspan {

/// Throws InputError naming run.groups, run.tensor_parallel or run.grid if `ranks` cannot be divided so.
/// Local.
void check_layout(int ranks, std::int64_t groups, std::int64_t tensor_parallel,
                  const std::optional<GridShape>& grid);

/// The communicators of one rank. Rank r of a group is member r % tensor_parallel of data-parallel row
/// r / tensor_parallel.
class ProcessLayout {
 public:
  /// Makes a layout that check_layout accepts. `gpu`: the visible GPU on which this rank computes, or none
  /// for the CPU; `gpu_memory`: bytes of it that the rank may use. Throws AgreedError if the GPUs of a row
  /// cannot communicate. Collective over world.
  ProcessLayout(const Comm& world, int groups, int tensor_parallel, std::optional<GridShape> grid,
                std::optional<int> gpu = {}, double gpu_memory = 0);

  const Comm& world() const { return world_; }
  const Comm& group() const { return group_; }
  /// The group's communicator for values in the memory where the ranks compute: NCCL if each rank has a GPU
  /// of its own, else MPI in host memory.
  const DeviceComm& group_device() const { return *gathering_; }
  const Comm& tensor() const { return tensor_->host(); }        ///< the ranks of this data-parallel row
  const DeviceComm& tensor_device() const { return *tensor_; }  ///< for values where they compute
  const Comm& data() const { return data_; }  ///< the ranks of all rows with this share of the weights
  const Grid& grid() const { return *grid_; }
  std::optional<int> gpu() const { return gpu_; }
  double gpu_memory() const { return gpu_memory_; }
  int groups() const { return groups_; }
  int group_number() const { return world_.rank() / group_.size(); }

 private:
  Comm world_;
  std::optional<int> gpu_;
  double gpu_memory_;
  int groups_;
  Comm group_;
  std::unique_ptr<DeviceComm> gathering_;
  std::unique_ptr<DeviceComm> tensor_;
  Comm data_;
  std::optional<Grid> grid_;
};

}  // namespace headspan
