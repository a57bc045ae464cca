#include "app/run/process_layout.h"

#include "base/checked.h"
#include "dist/comm/agreement.h"

namespace headspan {

void check_layout(int ranks, std::int64_t groups, std::int64_t tensor_parallel,
                  const std::optional<GridShape>& grid) {
  const auto of_ranks = [](std::int64_t n) { return std::to_string(n) + (n == 1 ? " rank" : " ranks"); };
  if (groups < 1 || ranks % groups != 0)
    throw InputError("", "run.groups", std::to_string(groups),
                     of_ranks(ranks) + " cannot be cut into that many groups",
                     "start a multiple of this, or use a divisor of " + std::to_string(ranks));
  const std::int64_t size = ranks / groups;
  if (tensor_parallel < 1 || size % tensor_parallel != 0)
    throw InputError("", "run.tensor_parallel", std::to_string(tensor_parallel),
                     "does not divide a group of " + of_ranks(size),
                     "start more ranks, or use a divisor of " + std::to_string(size));
  if (grid && checked_mul(grid->rows, grid->columns, "run.grid") != size)
    throw InputError("", "run.grid", to_string(*grid), "does not hold a group of " + of_ranks(size),
                     "use auto or PxQ with P times Q = " + std::to_string(size));
}

ProcessLayout::ProcessLayout(const Comm& world, int groups, int tensor_parallel,
                             std::optional<GridShape> grid, std::optional<int> gpu, double gpu_memory)
    : world_(Comm::duplicate(world.get())), gpu_(gpu), gpu_memory_(gpu_memory), groups_(groups) {
  const int size = world.size() / groups;
  group_ = world_.split(world.rank() / size, world.rank());
  const Comm row = group_.split(group_.rank() / tensor_parallel, group_.rank());
  const std::optional<int> joined = tensor_parallel > 1 ? gpu : std::nullopt;  // one rank has nobody to join
  agree(world_, [&] { tensor_ = make_device_comm(row, joined); });
  agree(world_, [&] {
    const bool on_gpus = gpu && size > 1 && have_separate_gpus(group_, *gpu);
    gathering_ = make_device_comm(group_, on_gpus ? gpu : std::nullopt);
  });
  data_ = group_.split(group_.rank() % tensor_parallel, group_.rank());
  const GridShape shape = grid.value_or(squarest_grid(size));
  grid_.emplace(group_, to_int(shape.rows), to_int(shape.columns));
}

}  // namespace headspan
